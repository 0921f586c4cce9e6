// Tiles of a prompt's attention: their sizes, how rows come to shared memory and from there to the tensor cores.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/async_rows.cuh"
#include "kernels/cuda/score_tiles.cuh"

namespace winnow::kernels::cuda {

inline constexpr int kPromptThreads = 128;
inline constexpr int kPromptLanes =
    64;  // of a block, 16 a warp; a lane is one query head of one token
inline constexpr int kPromptPositions = 64;  // of a tile

// Sizes for heads of kDim elements of T.
template <class T, int kDim>
struct PromptTile {
  // Floats go to the tensor cores as so many numbers of T, which add up to them exactly enough.
  static constexpr int kParts = std::is_same_v<T, __nv_bfloat16> ? 3 : 2;
  static constexpr int kStride = kDim + 8;  // elements; so that eight rows lie in different banks
  static constexpr size_t kRowBytes = kStride * sizeof(T);
  static constexpr size_t kStageBytes = 2 * kPromptPositions * kRowBytes;  // keys and values
  static constexpr size_t kQueryBytes = kParts * kPromptLanes * kRowBytes;
  static constexpr int kStages = kQueryBytes + 2 * kStageBytes <= (size_t{220} << 10) ? 2 : 1;
  static constexpr size_t kSharedBytes = kQueryBytes + kStages * kStageBytes;
};

// Four matrices of 8 × 8 elements, of which lane i gives the address of row i mod 8 of matrix i / 8.
__device__ __forceinline__ uint4 load_matrices(uint32_t row) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(row));
  return m;
}
__device__ __forceinline__ uint4 load_transposed(uint32_t row) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(row));
  return m;
}

// The address that matrices are counted from, anew in each tile: else the compiler keeps the addresses of all of them in registers.
__device__ __forceinline__ uint32_t matrices_at(const void* first) {
  uint32_t address = shared_address(first);
  asm volatile("" : "+r"(address));
  return address;
}

// 16 bytes to shared memory, which arrive later; zeros where there is nothing.
__device__ __forceinline__ void fetch_16(void* to, const std::byte* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
}

// The numbers of T that x is the sum of.
template <class T, int kParts>
__device__ __forceinline__ void split(float x, T (&parts)[kParts]) {
#pragma unroll
  for (T& part : parts) {
    round_to(x, part);
    x -= to_float(part);
  }
}

// A power of two that brings a query's elements, the largest of which is `most`, to where T is precise, and back.
class QueryScale {
 public:
  __device__ explicit QueryScale(float most) {
    exponent_ = min(max(static_cast<int>(__float_as_uint(most) >> 23), 1 + 64), 254 - 64);
  }
  __device__ float down() const {
    return __uint_as_float(static_cast<uint32_t>(254 - exponent_) << 23);
  }
  __device__ float up() const { return __uint_as_float(static_cast<uint32_t>(exponent_) << 23); }

 private:
  int exponent_;
};

// Cuts a query [kDim] into the parts that tensor cores take, at `to` [kParts, kPromptLanes, kStride], by four neighbouring lanes of
// a warp; zeros where it is null. Returns what its scores are to be multiplied with.
// kUnroll: loads under way, which take registers.
template <class T, int kDim, int kUnroll = kDim / 16>
__device__ __forceinline__ float stage_query(const float* q, int lane, T* to) {
  using Tile = PromptTile<T, kDim>;
  float most = 0.0F;
#pragma unroll kUnroll
  for (int d = lane % 4 * 4; q != nullptr && d < kDim; d += 16) {
    const float4 x = *reinterpret_cast<const float4*>(q + d);
    most = fmaxf(fmaxf(most, fmaxf(fabsf(x.x), fabsf(x.y))), fmaxf(fabsf(x.z), fabsf(x.w)));
  }
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
  most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
  const QueryScale scale(most);
  const float down = scale.down();
#pragma unroll kUnroll
  for (int d = lane % 4 * 4; d < kDim; d += 16) {
    const float4 x =
        q != nullptr ? *reinterpret_cast<const float4*>(q + d) : make_float4(0, 0, 0, 0);
    T parts[4][Tile::kParts];
    split(x.x * down, parts[0]);
    split(x.y * down, parts[1]);
    split(x.z * down, parts[2]);
    split(x.w * down, parts[3]);
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part) {
      *reinterpret_cast<uint2*>(to + static_cast<size_t>(part) * kPromptLanes * Tile::kStride + d) =
          make_uint2(pack(parts[0][part], parts[1][part]), pack(parts[2][part], parts[3][part]));
    }
  }
  return scale.up();
}

// The products of 16 queries, the first of which lies at `queries` [kParts, kPromptLanes, kStride], with the 64 rows at `keys`
// [kPromptPositions, kStride]: the smallest parts of queries first. kSteps: of 16 elements, whose matrices may be under way together,
// which takes registers.
template <class T, int kDim, int kSteps = kDim / 16>
__device__ __forceinline__ void score_tile(const T* queries, const T* keys, int lane,
                                           float (&scores)[8][4]) {
  constexpr int kPartsTogether = kSteps == kDim / 16 ? PromptTile<T, kDim>::kParts : 1;
  using Tile = PromptTile<T, kDim>;
  const uint32_t q_at = matrices_at(queries + lane % 16 * Tile::kStride + lane / 16 * 8);
  const uint32_t k_at =
      matrices_at(keys + (lane / 16 * 8 + lane % 8) * Tile::kStride + lane / 8 % 2 * 8);
#pragma unroll kPartsTogether
  for (int part = Tile::kParts - 1; part >= 0; --part) {
#pragma unroll kSteps
    for (int step = 0; step < kDim / 16; ++step) {
      const uint4 q = load_matrices(q_at + (part * kPromptLanes * Tile::kStride + step * 16) *
                                               static_cast<int>(sizeof(T)));
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        const uint4 k = load_matrices(k_at + (pair * 16 * Tile::kStride + step * 16) *
                                                 static_cast<int>(sizeof(T)));
        multiply(scores[2 * pair], q, k.x, k.y, T());
        multiply(scores[2 * pair + 1], q, k.z, k.w, T());
      }
    }
  }
}

// Where the rows of a tile are: which of its positions have one, and which of these attention sees.
struct TileRows {
  uint32_t there[2];
  uint32_t visible[2];
};

__device__ __forceinline__ uint64_t both(const uint32_t (&words)[2]) {
  return static_cast<uint64_t>(words[1]) << 32 | words[0];
}

// Bits [0, n) for any n.
__device__ __forceinline__ uint64_t bits_below(int n) {
  return n >= 64 ? ~uint64_t{0} : n <= 0 ? 0 : (uint64_t{1} << n) - 1;
}

}  // namespace winnow::kernels::cuda
