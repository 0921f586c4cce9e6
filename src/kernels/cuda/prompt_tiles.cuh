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
__device__ __forceinline__ uint4 load_matrices(const void* row) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(shared_address(row)));
  return m;
}
__device__ __forceinline__ uint4 load_transposed(const void* row) {
  uint4 m;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m.x), "=r"(m.y), "=r"(m.z), "=r"(m.w)
               : "r"(shared_address(row)));
  return m;
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
