// Rows to floats and the canonical dot product, as kernels/cpu/rows-inl.h specifies it. Compiled without contraction: a fused
// multiply-add happens where it is written.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace winnow::kernels::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffU;

// Eight elements of a row as they lie in memory.
template <class T>
struct Eight {
  uint4 parts[sizeof(T) * 8 / sizeof(uint4)];
};

template <class T>
__device__ __forceinline__ Eight<T> zero_eight() {
  Eight<T> eight;
  for (uint4& part : eight.parts) {
    part = make_uint4(0, 0, 0, 0);
  }
  return eight;
}

template <class T>
__device__ __forceinline__ Eight<T> load_eight(const std::byte* from) {
  Eight<T> eight;
#pragma unroll
  for (size_t i = 0; i < sizeof(eight.parts) / sizeof(uint4); ++i) {
    eight.parts[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return eight;
}

__device__ __forceinline__ void to_floats(const Eight<float>& eight, float (&x)[8]) {
  const auto* const from = reinterpret_cast<const float*>(&eight);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    x[i] = from[i];
  }
}

__device__ __forceinline__ void to_floats(const Eight<__half>& eight, float (&x)[8]) {
  const auto* const from = reinterpret_cast<const __half2*>(&eight);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float2 pair = __half22float2(from[i]);
    x[2 * i] = pair.x;
    x[2 * i + 1] = pair.y;
  }
}

__device__ __forceinline__ void to_floats(const Eight<__nv_bfloat16>& eight, float (&x)[8]) {
  const auto* const from = reinterpret_cast<const uint32_t*>(&eight);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[2 * i] = __uint_as_float(from[i] << 16);
    x[2 * i + 1] = __uint_as_float(from[i] & 0xffff0000U);
  }
}

// The chains of one row, of which lane i of four holds p_8i … p_8i+7, to their sum, in all four lanes. A lane sends what it
// does not go on with, so that no addition is done twice; each is of the same two numbers as in sum_chains().
__device__ __forceinline__ float fold_chains(const float (&p)[8], int lane) {
  const bool has_upper = (lane & 1) != 0;
  float a[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float sent = has_upper ? p[i] : p[i + 4];
    const float kept = has_upper ? p[i + 4] : p[i];
    a[i] = kept + __shfl_xor_sync(kAllLanes, sent, 1);
  }
  const bool has_last = (lane & 2) != 0;
  float q[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sent = has_last ? a[i] : a[i + 2];
    const float kept = has_last ? a[i + 2] : a[i];
    q[i] = kept + __shfl_xor_sync(kAllLanes, sent, 2);
  }
  const float pair = q[0] + q[1];
  const float four = pair + __shfl_xor_sync(kAllLanes, pair, 2);
  return four + __shfl_xor_sync(kAllLanes, four, 1);
}

// exp(x) for x <= 0, exactly 0 below -87: kernels/cpu/rows-inl.h's, operation for operation. NaN stays NaN.
__device__ __forceinline__ float exp_nonpositive(float x) {
  const bool is_zero = x < -87.0F;
  const float clamped = is_zero ? 0.0F : x;
  const float n = rintf(clamped * 1.44269504088896341F);
  float r = __fmaf_rn(n, -0.693359375F, clamped);
  r = __fmaf_rn(n, 2.12194440e-4F, r);
  float p = 1.9875691500e-4F;
  p = __fmaf_rn(p, r, 1.3981999507e-3F);
  p = __fmaf_rn(p, r, 8.3334519073e-3F);
  p = __fmaf_rn(p, r, 4.1665795894e-2F);
  p = __fmaf_rn(p, r, 1.6666665459e-1F);
  p = __fmaf_rn(p, r, 5.0000001201e-1F);
  p = __fmaf_rn(p, r * r, r) + 1.0F;
  const float y = p * __int_as_float((static_cast<int>(n) + 127) << 23);
  return is_zero ? 0.0F : (isnan(x) ? x : y);
}

}  // namespace winnow::kernels::cuda
