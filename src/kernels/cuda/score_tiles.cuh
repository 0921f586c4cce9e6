// Scores of eight rows with up to eight queries, on tensor cores, with the precision of floats.
//
// Products of halves are exact there and are added up in floats. So keys go in as they are; a query, scaled by a power of two to
// at most 2, is cut into parts that are exact together, two of f16 (22 bits) or three of bf16 (24 bits), which take the 16 rows of
// a matrix side by side. In what order a tensor core adds depends on nothing but the place in the row.
#pragma once

#include <type_traits>

#include "kernels/cuda/rows.cuh"

namespace winnow::kernels::cuda {

// c += a · b for a [16, 16], b [16, 8]: mma.m16n8k16, whose layout of registers is PTX's.
__device__ __forceinline__ void multiply(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1,
                                         __half /*type*/) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply(float (&c)[4], const uint4& a, uint32_t b0, uint32_t b1,
                                         __nv_bfloat16 /*type*/) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

template <class T>
__device__ __forceinline__ uint32_t pack(T low, T high) {
  T both[2] = {low, high};
  uint32_t bits;
  memcpy(&bits, both, sizeof(bits));
  return bits;
}

__device__ __forceinline__ void round_to(float x, __half& half) {
  half = __float2half_rn(x);
}
__device__ __forceinline__ void round_to(float x, __nv_bfloat16& half) {
  half = __float2bfloat16_rn(x);
}
__device__ __forceinline__ float to_float(__half x) {
  return __half2float(x);
}
__device__ __forceinline__ float to_float(__nv_bfloat16 x) {
  return __bfloat162float(x);
}

// The queries as matrices, in the registers of a warp. Columns are elements in an order of their own, so that a lane gets what
// it needs of a key with 16-byte loads: of each 32 elements lane i has those at 8 (i mod 4) … + 7, four for each of two matrices.
// Lane i has query i / 4, in rows i / 4 (first part) and 8 + i / 4 (second part).
template <class T, int kDim>
class QueryFragments {
  static constexpr int kSteps = (kDim + 31) / 32;  // of 32 elements
  static constexpr bool kHasThird = std::is_same_v<T, __nv_bfloat16>;

 public:
  static constexpr size_t kBytes =
      2 * kSteps * 32 * (sizeof(uint4) + (kHasThird ? sizeof(uint2) : 0));

  // The elements of this lane's query, of q [n_queries, kDim].
  struct Elements {
    float x[kSteps][8];
  };
  __device__ static Elements load(const float* q, int n_queries) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int query = lane / 4;
    Elements elements;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const int d = step * 32 + lane % 4 * 8;
      const bool is_there = query < n_queries && d < kDim;
      const auto* const from = reinterpret_cast<const float4*>(q + query * kDim + d);
      const float4 low = is_there ? __ldg(from) : make_float4(0, 0, 0, 0);
      const float4 high = is_there ? __ldg(from + 1) : make_float4(0, 0, 0, 0);
      float(&x)[8] = elements.x[step];
      x[0] = low.x, x[1] = low.y, x[2] = low.z, x[3] = low.w;
      x[4] = high.x, x[5] = high.y, x[6] = high.z, x[7] = high.w;
    }
    return elements;
  }

  // By all warps of a block: writes the fragments to `to`. Returns what scores of this lane's query are to be multiplied with.
  __device__ static float store(const Elements& elements, uint4* to) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    float most = 0.0F;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        most = fmaxf(most, fabsf(elements.x[step][i]));
      }
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    // Powers of two: 1 … 2 after scaling, whatever it was.
    const int exponent = min(max(static_cast<int>(__float_as_uint(most) >> 23), 1 + 64), 254 - 64);
    const float down = __uint_as_float(static_cast<uint32_t>(254 - exponent) << 23);
    const float up = __uint_as_float(static_cast<uint32_t>(exponent) << 23);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if (warp != step) {
        continue;
      }
      T parts[3][8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float rest = elements.x[step][i] * down;
#pragma unroll
        for (int part = 0; part < 3; ++part) {
          round_to(rest, parts[part][i]);
          rest -= to_float(parts[part][i]);
        }
      }
#pragma unroll
      for (int matrix = 0; matrix < 2; ++matrix) {
        const int at = 4 * matrix;
        const auto two = [&](int part, int i) {
          return pack(parts[part][at + i], parts[part][at + i + 1]);
        };
        to[(2 * step + matrix) * 32 + lane] =
            make_uint4(two(0, 0), two(1, 0), two(0, 2), two(1, 2));
        if constexpr (kHasThird) {
          third(to)[(2 * step + matrix) * 32 + lane] = make_uint2(two(2, 0), two(2, 2));
        }
      }
    }
    return up;
  }

  __device__ QueryFragments(const uint4* from, int lane) {
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) {
      first_two_[i] = from[i * 32 + lane];
      if constexpr (kHasThird) {
        third_[i] = third(from)[i * 32 + lane];
      }
    }
  }

  // The scores of this lane's query with rows 2 (lane mod 4) and the next of the eight at `rows`.
  __device__ float2 score_rows(const std::byte* rows, int lane) const {
    const std::byte* const row = rows + (lane / 4) * kDim * sizeof(T) + lane % 4 * 16;
    float c[4] = {};
    float d[4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const bool is_there = step * 32 + lane % 4 * 8 < kDim;
      const uint4 key =
          is_there ? *reinterpret_cast<const uint4*>(row + step * 64) : make_uint4(0, 0, 0, 0);
      multiply(c, first_two_[2 * step], key.x, key.y, T());
      multiply(c, first_two_[2 * step + 1], key.z, key.w, T());
      if constexpr (kHasThird) {
        multiply(d, make_uint4(third_[2 * step].x, 0, third_[2 * step].y, 0), key.x, key.y, T());
        multiply(d, make_uint4(third_[2 * step + 1].x, 0, third_[2 * step + 1].y, 0), key.z, key.w,
                 T());
      }
    }
    return make_float2(c[0] + (c[2] + d[0]), c[1] + (c[3] + d[1]));
  }

 private:
  template <class Word>
  __device__ static auto* third(Word* fragments) {
    using Third = std::conditional_t<std::is_const_v<Word>, const uint2, uint2>;
    return reinterpret_cast<Third*>(fragments + 2 * kSteps * 32);
  }

  uint4 first_two_[2 * kSteps];
  uint2 third_[kHasThird ? 2 * kSteps : 1];
};

}  // namespace winnow::kernels::cuda
