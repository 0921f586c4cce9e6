// New rows: floats to the cache's types, counting what does not fit.

#include "base/error.h"
#include "kernels/cuda/append_rows.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/rows.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kLanesPerRow = 4;  // each has 8 of the 32 chains, and converts 8 elements at a time
constexpr int kRows = kThreads / kLanesPerRow;

struct Range {
  float largest;
  float beyond;  // the smallest that no longer rounds to it
};

__device__ __forceinline__ Range range_of(__half /*type*/) {
  return {65504.0F, 65520.0F};
}
__device__ __forceinline__ Range range_of(__nv_bfloat16 /*type*/) {
  return {__uint_as_float(0x7F7F0000U), __uint_as_float(0x7F7F8000U)};
}
__device__ __forceinline__ Range range_of(float /*type*/) {
  return {__uint_as_float(0x7F7FFFFFU), INFINITY};
}

// Rounded to nearest, ties to even; a NaN stays one, with what its bits say.
__device__ __forceinline__ uint16_t round_bits(float x, __half /*type*/) {
  const uint32_t bits = __float_as_uint(x);
  return isnan(x) ? static_cast<uint16_t>((bits >> 16 & 0x8000U) | 0x7E00U | (bits >> 13 & 0x3FFU))
                  : __half_as_ushort(__float2half_rn(x));
}
__device__ __forceinline__ uint16_t round_bits(float x, __nv_bfloat16 /*type*/) {
  const uint32_t bits = __float_as_uint(x);
  const uint32_t high = bits >> 16;
  return static_cast<uint16_t>(isnan(x) ? high | 0x40U : (bits + 0x7FFFU + (high & 1U)) >> 16);
}

template <class T>
__device__ __forceinline__ Eight<T> round_eight(const float (&x)[8]) {
  Eight<T> eight;
  if constexpr (sizeof(T) == sizeof(float)) {
    memcpy(&eight, x, sizeof(eight));
  } else {
    uint16_t bits[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      bits[i] = round_bits(x[i], T());
    }
    memcpy(&eight, bits, sizeof(eight));
  }
  return eight;
}

struct ElementCounts {
  int saturated = 0;
  int nonfinite = 0;
};

// Eight elements of `from` to their place in a row.
template <class T>
__device__ __forceinline__ Eight<T> store_eight(const float* from, std::byte* to,
                                                ElementCounts& counts) {
  const Range range = range_of(T());
  const auto* const pairs = reinterpret_cast<const float4*>(from);
  const float4 low = pairs[0];
  const float4 high = pairs[1];
  float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
  for (float& element : x) {
    if (fabsf(element) <= range.largest) {
      continue;
    }
    if (isfinite(element)) {
      counts.saturated += fabsf(element) >= range.beyond ? 1 : 0;
      element = copysignf(range.largest, element);
    } else {
      ++counts.nonfinite;
    }
  }
  const Eight<T> eight = round_eight<T>(x);
  auto* const words = reinterpret_cast<uint4*>(to);
#pragma unroll
  for (size_t i = 0; i < sizeof(eight.parts) / sizeof(uint4); ++i) {
    words[i] = eight.parts[i];
  }
  return eight;
}

__device__ __forceinline__ void add_to(unsigned long long& total, int n) {
  if (n > 0) {
    atomicAdd(&total, static_cast<unsigned long long>(n));
  }
}

// Mapping: blockIdx.y = one head of one sequence, blockIdx.x = 32 of its new rows, four lanes a row. Bytes: 4 an element read, its
// own size written. Too short to be limited by anything but its launch.
template <class Key, class Value>
__global__ void __launch_bounds__(kThreads)
    append_kernel(int head_dim, int n_kv_heads, const AppendHead* heads, const float* keys,
                  const float* values) {
  const AppendHead head = heads[blockIdx.y];
  const int row =
      static_cast<int>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / kLanesPerRow;
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerRow;
  if (static_cast<int>(blockIdx.x) * kRows >= head.n_tokens) {
    return;
  }
  const bool is_there = row < head.n_tokens;
  const size_t from =
      (static_cast<size_t>(head.first_token + (is_there ? row : 0)) * n_kv_heads + head.kv_head) *
      head_dim;
  const size_t slot = static_cast<size_t>(head.rows.n) + row;
  const size_t to = slot * head_dim;
  ElementCounts of_keys;
  ElementCounts of_values;
  float chains[8] = {};
  for (int d = lane * 8; is_there && d < head_dim; d += 32) {
    float x[8];
    to_floats(store_eight<Key>(keys + from + d, head.rows.keys + (to + d) * sizeof(Key), of_keys),
              x);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      chains[i] = __fmaf_rn(x[i], x[i], chains[i]);
    }
    store_eight<Value>(values + from + d, head.rows.values + (to + d) * sizeof(Value), of_values);
  }
  const float norm = fold_chains(chains, lane);
  if (!is_there) {
    return;
  }
  if (lane == 0) {
    head.rows.scores[slot] = norm;
    if (head.rows.mass != nullptr) {
      head.rows.mass[slot] = 0;
    }
  }
  add_to(head.counts->saturated, of_keys.saturated + of_values.saturated);
  add_to(head.counts->nonfinite_keys, of_keys.nonfinite);
  add_to(head.counts->nonfinite_values, of_values.nonfinite);
}

// Mapping: blockIdx.y = one head of one sequence, a thread a row.
__global__ void __launch_bounds__(kThreads) positions_kernel(const AppendHead* heads) {
  const AppendHead head = heads[blockIdx.y];
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row < head.n_tokens) {
    head.rows.positions[head.rows.n + row] = head.first_pos + row;
  }
}

// Mapping: blockIdx.y = one head of one sequence, blockIdx.x = a token, from the last one on; a thread four elements at a time.
__global__ void __launch_bounds__(kThreads)
    remember_kernel(int group_vectors, int n_kv_heads, const AppendHead* heads,
                    const float4* queries) {
  const AppendHead head = heads[blockIdx.y];
  const int token = head.n_tokens - 1 - static_cast<int>(blockIdx.x);
  if (head.ring == nullptr || token < 0 || static_cast<int>(blockIdx.x) >= head.n_ring) {
    return;
  }
  const auto at = [&](int of_token) {
    return (static_cast<size_t>(of_token) * n_kv_heads + head.kv_head) * group_vectors;
  };
  const float4* const from = queries + at(head.first_token + token);
  float4* const to =
      reinterpret_cast<float4*>(head.ring) + at((head.first_pos + token) % head.n_ring);
  for (int i = static_cast<int>(threadIdx.x); i < group_vectors; i += kThreads) {
    to[i] = from[i];
  }
}

}  // namespace

void remember_queries(size_t group_floats, int n_kv_heads, const AppendHead* heads, int n_heads,
                      int most_tokens, const float* queries, const Stream& stream) {
  if (n_heads == 0 || most_tokens == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(most_tokens), static_cast<unsigned>(n_heads));
  remember_kernel<<<grid, kThreads, 0, stream.get()>>>(static_cast<int>(group_floats / 4),
                                                       n_kv_heads, heads,
                                                       reinterpret_cast<const float4*>(queries));
  check(cudaGetLastError(), "remembering queries");
}

void append_positions(const AppendHead* heads, int n_heads, int most_tokens, const Stream& stream) {
  if (n_heads == 0 || most_tokens == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>((most_tokens + kThreads - 1) / kThreads),
                  static_cast<unsigned>(n_heads));
  positions_kernel<<<grid, kThreads, 0, stream.get()>>>(heads);
  check(cudaGetLastError(), "appending positions");
}

void append_rows(const RowFormat& format, int n_kv_heads, const AppendHead* heads, int n_heads,
                 int most_tokens, const float* keys, const float* values, const Stream& stream) {
  check_head_dim(format.head_dim);
  if (n_heads == 0 || most_tokens == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>((most_tokens + kRows - 1) / kRows),
                  static_cast<unsigned>(n_heads));
  with_row_type(format.key_type, [&](auto key) {
    with_row_type(format.value_type, [&](auto value) {
      append_kernel<decltype(key), decltype(value)>
          <<<grid, kThreads, 0, stream.get()>>>(format.head_dim, n_kv_heads, heads, keys, values);
    });
  });
  check(cudaGetLastError(), "appending rows");
}

}  // namespace winnow::kernels::cuda
