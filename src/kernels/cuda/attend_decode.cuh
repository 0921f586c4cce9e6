// The kernel that attends for decoding; attend_decode_*.cu compile it for their head sizes.
#pragma once

#include <algorithm>

#include "kernels/cuda/async_rows.cuh"
#include "kernels/cuda/attend_decode.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/decode_parts.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/score_tiles.cuh"

namespace winnow::kernels::cuda {

inline constexpr int kDecodeThreads = 256;
inline constexpr int kDecodeWarps = kDecodeThreads / 32;

// How rows of kDim elements are cut into chunks that fill a stage, and spread over lanes.
template <int kDim>
struct DecodeRows {
  static constexpr int kLanes = kDim <= 64    ? 8
                                : kDim <= 128 ? 16
                                              : 32;  // of a row, 8 elements each
  static constexpr int kPerWarp = 32 / kLanes;       // rows side by side
  static constexpr int kChains = kDecodeWarps * kPerWarp;
  static constexpr int kChunk = 64;
  static constexpr int kStages = kDim <= 128 ? 4 : 3;
  static constexpr size_t kRowBytes = static_cast<size_t>(kDim) * 2;
  static constexpr size_t kStageBytes = kChunk * kRowBytes;
};

// kQueries numbers beside each other.
template <int kQueries>
__device__ __forceinline__ void load_weights(const float* from, float (&weights)[kQueries]) {
  if constexpr (kQueries % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kQueries; i += 4) {
      const float4 four = *reinterpret_cast<const float4*>(from + i);
      weights[i] = four.x, weights[i + 1] = four.y, weights[i + 2] = four.z,
      weights[i + 3] = four.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kQueries; ++i) {
      weights[i] = from[i];
    }
  }
}

// Merges what the parts of one column left, in ascending order, into out [n_queries, head_dim] and sums [n_queries]. By all
// threads of a block; factors [n_parts, kQueries] is its scratch.
template <int kDim, int kQueries>
__device__ void merge_parts(const float* partials, int n_parts, int n_queries, float* out,
                            WeightSum* sums_of_weights, float* factors) {
  constexpr size_t kStride = partial_floats(kQueries, kDim);
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const auto partial = [&](int part, int i) {
    return __ldcg(partials + static_cast<size_t>(part) * kStride + i);
  };
  if (warp < kQueries) {
    float most = -INFINITY;
    for (int part = lane; part < n_parts; part += 32) {
      most = fmaxf(most, partial(part, kQueries * kDim + warp));
    }
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, offset));
    }
    const float base = most == -INFINITY ? 0.0F : most;
    if (lane == 0 && warp < n_queries) {
      sums_of_weights[warp].highest = most;
    }
    for (int part = lane; part < n_parts; part += 32) {
      factors[part * kQueries + warp] =
          exp_nonpositive(partial(part, kQueries * kDim + warp) - base);
    }
  }
  __syncthreads();
  // Two outputs a thread, as far as they go round; many parts under way.
  for (int i = 2 * thread; i < n_queries * kDim; i += 2 * kDecodeThreads) {
    const int query = i / kDim;
    constexpr int kUnroll = 16;
    float sum = 0.0F;
    float2 output = make_float2(0.0F, 0.0F);
    for (int base = 0; base < n_parts; base += kUnroll) {
      float2 outputs[kUnroll];
      float sums[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const float* const of_part =
            partials + static_cast<size_t>(min(base + u, n_parts - 1)) * kStride;
        outputs[u] = __ldcg(reinterpret_cast<const float2*>(of_part + i));
        sums[u] = __ldcg(of_part + kQueries * (kDim + 1) + query);
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const float factor = base + u < n_parts ? factors[(base + u) * kQueries + query] : 0.0F;
        if (factor != 0.0F) {  // what contributes nothing may be no number
          sum = __fmaf_rn(sums[u], factor, sum);
          output.x = __fmaf_rn(outputs[u].x, factor, output.x);
          output.y = __fmaf_rn(outputs[u].y, factor, output.y);
        }
      }
    }
    const auto divided = [&](float x) {
      return sum == 0.0F ? 0.0F : x / sum + 0.0F;  // -0 becomes +0
    };
    *reinterpret_cast<float2*>(out + i) = make_float2(divided(output.x), divided(output.y));
    if (i % kDim == 0) {
      sums_of_weights[query].sum = sum;
    }
  }
}

// Attention of up to kQueries queries of one KV head.
//
// Mapping: blockIdx.x = one part of one column; eight warps. First the scores of all its rows, by the tensor cores
// (score_tiles.cuh); then weights; then each group of kLanes lanes sums the values of the rows of its chain, for all queries. K
// and then V pass through stages of shared memory, filled by the copy engine, so that V is on its way while scores are
// computed. The block that finishes a column's last part merges them. Bytes: keys and values once. Limited by memory for long
// caches (128 KiB a multiprocessor under way, none of it while it sums values and has no more stages), by the chain of
// dependent steps for short ones.
template <class T, int kDim, int kQueries>
__global__ void __launch_bounds__(kDecodeThreads, 2)
    attend_decode_kernel(DecodeParts plan, int first_column, int n_columns, float scale) {
  using Rows = DecodeRows<kDim>;
  constexpr int kLanes = Rows::kLanes;
  extern __shared__ __align__(128) std::byte shared[];
  std::byte* const stages = shared;
  auto* const fragments = reinterpret_cast<uint4*>(stages + Rows::kStages * Rows::kStageBytes);
  auto* const weights = reinterpret_cast<float*>(reinterpret_cast<std::byte*>(fragments) +
                                                 QueryFragments<T, kDim>::kBytes);
  __shared__ Arrival arrivals[Rows::kStages];
  __shared__ float warp_values[kDecodeWarps][kQueries];
  __shared__ float maxima[kQueries];
  __shared__ bool is_last;

  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int column_of_call = static_cast<int>(blockIdx.x) % n_columns;
  const int column = first_column + column_of_call;
  const DecodePart part =
      plan.parts[static_cast<size_t>(static_cast<int>(blockIdx.x) / n_columns) * plan.n_columns +
                 column];
  const int n_rows = part.n_rows;
  if (n_rows == 0) {
    if (part.n_filled == 0 && static_cast<int>(blockIdx.x) < n_columns) {  // nothing to attend to
      for (int i = thread; i < part.n_queries * kDim; i += kDecodeThreads) {
        part.out[i] = 0.0F;
      }
      if (thread < part.n_queries) {
        plan.sums[part.first_sum + thread] = {-INFINITY, 0.0F};
      }
    }
    return;
  }
  const int n_chunks = (n_rows + Rows::kChunk - 1) / Rows::kChunk;
  const auto rows_of = [&](int chunk) { return min(Rows::kChunk, n_rows - chunk * Rows::kChunk); };
  // Chunks of keys, then those of values, one after the other.
  const auto fetch = [&](int i) {
    const int chunk = i < n_chunks ? i : i - n_chunks;
    const auto bytes = static_cast<uint32_t>(rows_of(chunk) * Rows::kRowBytes);
    Arrival& arrival = arrivals[i % Rows::kStages];
    std::byte* const stage = stages + i % Rows::kStages * Rows::kStageBytes;
    const std::byte* const rows = i < n_chunks ? part.keys : part.values;
    arrival.expect(bytes);
    if (part.slots == nullptr) {
      arrival.fetch(stage, rows + static_cast<size_t>(chunk) * Rows::kStageBytes, bytes);
      return;
    }
    for (int row = 0; row < rows_of(chunk); ++row) {
      const auto slot = static_cast<size_t>(part.slots[chunk * Rows::kChunk + row]);
      arrival.fetch(stage + row * Rows::kRowBytes, rows + slot * Rows::kRowBytes, Rows::kRowBytes);
    }
  };
  const auto wait_for = [&](int i) {
    arrivals[i % Rows::kStages].wait(i / Rows::kStages);
    return stages + i % Rows::kStages * Rows::kStageBytes;
  };
  const auto done_with = [&](int i) {
    __syncthreads();
    if (thread == 0 && i + Rows::kStages < 2 * n_chunks) {
      fetch(i + Rows::kStages);
    }
  };
  // Asked for before the rows, behind which they would wait.
  const auto elements = QueryFragments<T, kDim>::load(part.q, part.n_queries);
  if (thread == 0) {
    for (Arrival& arrival : arrivals) {
      arrival.init();
    }
    fence_arrivals();
    for (int i = 0; i < min(Rows::kStages, 2 * n_chunks); ++i) {
      fetch(i);
    }
  }
  const float score_scale =
      QueryFragments<T, kDim>::store(elements, fragments) * scale;  // of this lane's query
  __syncthreads();

  // Scores.
  {
    const QueryFragments<T, kDim> query(fragments, lane);
    const int query_of_lane = lane / 4;
    for (int chunk = 0; chunk < n_chunks; ++chunk) {
      const std::byte* const stage = wait_for(chunk);
      if (warp * 8 < rows_of(chunk)) {
        const float2 pair = query.score_rows(stage + warp * 8 * Rows::kRowBytes, lane);
        const int row = chunk * Rows::kChunk + warp * 8 + 2 * (lane % 4);
        const auto put = [&](int i, float score) {
          if (i < n_rows && query_of_lane < kQueries) {
            weights[i * kQueries + query_of_lane] = score * score_scale;
          }
        };
        put(row, pair.x);
        put(row + 1, pair.y);
      }
      done_with(chunk);
    }
  }

  // Weights: relative to the highest score of each query.
  {
    const int n_weights = n_rows * kQueries;
    float highest = -INFINITY;
    for (int i = thread; i < n_weights; i += kDecodeThreads) {
      highest = fmaxf(highest, weights[i]);
    }
#pragma unroll
    for (int offset = 16; offset >= kQueries; offset /= 2) {
      highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, offset));
    }
    if (lane < kQueries) {
      warp_values[warp][lane] = highest;
    }
    __syncthreads();
    highest = -INFINITY;
#pragma unroll
    for (int i = 0; i < kDecodeWarps; ++i) {
      highest = fmaxf(highest, warp_values[i][thread % kQueries]);
    }
    if (thread < kQueries) {
      maxima[thread] = highest;
    }
    const float base = highest == -INFINITY ? 0.0F : highest;
    for (int i = thread; i < n_weights; i += kDecodeThreads) {
      weights[i] = exp_nonpositive(weights[i] - base);
    }
    __syncthreads();
  }

  // Values.
  const int lane_of_row = lane % kLanes;
  const int chain = warp * Rows::kPerWarp + lane / kLanes;
  const bool has_elements = lane_of_row * 8 < kDim;
  float sums[kQueries] = {};
  float outputs[kQueries][8] = {};
  for (int chunk = 0; chunk < n_chunks; ++chunk) {
    const std::byte* const stage = wait_for(n_chunks + chunk);
    const int first = chunk * Rows::kChunk;
    const int n = rows_of(chunk);
    // The rows of this group's chain.
#pragma unroll
    for (int i = 0; i < Rows::kChunk / Rows::kChains; ++i) {
      const int row = i * Rows::kChains + chain;
      if (row >= n) {
        break;
      }
      Eight<T> value = zero_eight<T>();
      if (has_elements) {
        value = load_eight<T>(stage + row * Rows::kRowBytes + lane_of_row * 16);
      }
      float x[8];
      to_floats(value, x);
      float of_row[kQueries];
      load_weights(weights + (first + row) * kQueries, of_row);
#pragma unroll
      for (int query = 0; query < kQueries; ++query) {
        if (part.has_nonfinite_values != 0 && of_row[query] == 0.0F) {
          continue;
        }
        sums[query] += of_row[query];
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          outputs[query][e] = __fmaf_rn(of_row[query], x[e], outputs[query][e]);
        }
      }
    }
    done_with(n_chunks + chunk);
  }

  // The chains of a warp, then those of the warps, in order; the stages' memory is free now.
#pragma unroll
  for (int offset = kLanes; offset < 32; offset *= 2) {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      sums[query] += __shfl_xor_sync(kAllLanes, sums[query], offset);
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        outputs[query][e] += __shfl_xor_sync(kAllLanes, outputs[query][e], offset);
      }
    }
  }
  auto* const of_warps = reinterpret_cast<float*>(stages);  // [kDecodeWarps, kQueries, kDim]
  static_assert(kDecodeWarps * kQueries * kDim * sizeof(float) <=
                Rows::kStages * Rows::kStageBytes);
  if (lane < kLanes) {
#pragma unroll
    for (int query = 0; query < kQueries; ++query) {
      if (has_elements) {
        auto* const to =
            reinterpret_cast<float4*>(of_warps + (warp * kQueries + query) * kDim + lane * 8);
        const float(&of_query)[8] = outputs[query];
        to[0] = make_float4(of_query[0], of_query[1], of_query[2], of_query[3]);
        to[1] = make_float4(of_query[4], of_query[5], of_query[6], of_query[7]);
      }
      if (lane == 0) {
        warp_values[warp][query] = sums[query];
      }
    }
  }
  __syncthreads();
  const auto of_all_warps = [&](auto&& of_warp) {
    float sum = of_warp(0);
#pragma unroll
    for (int i = 1; i < kDecodeWarps; ++i) {
      sum += of_warp(i);
    }
    return sum;
  };
  const auto output_of = [&](int i) {
    return of_all_warps([&](int w) { return of_warps[w * kQueries * kDim + i]; });
  };
  const auto sum_of = [&](int query) {
    return of_all_warps([&](int w) { return warp_values[w][query]; });
  };
  if (part.n_filled == 1) {
    for (int i = thread; i < part.n_queries * kDim; i += kDecodeThreads) {
      const float sum = sum_of(i / kDim);
      part.out[i] = sum == 0.0F ? 0.0F : output_of(i) / sum + 0.0F;  // -0 becomes +0
    }
    if (thread < part.n_queries) {
      plan.sums[part.first_sum + thread] = {maxima[thread], sum_of(thread)};
    }
    return;
  }
  constexpr size_t kStride = partial_floats(kQueries, kDim);
  float* const partials =
      plan.partials + static_cast<size_t>(column_of_call) * plan.most_parts * kStride;
  float* const partial = partials + static_cast<size_t>(part.rank) * kStride;
  for (int i = thread; i < kQueries * kDim; i += kDecodeThreads) {
    __stcg(partial + i, output_of(i));
  }
  if (thread < kQueries) {
    __stcg(partial + kQueries * kDim + thread, maxima[thread]);
    __stcg(partial + kQueries * (kDim + 1) + thread, sum_of(thread));
  }
  __syncthreads();
  if (thread == 0) {
    __threadfence();  // what all threads have written comes before the count
    is_last = atomicAdd(plan.n_done + column, 1) == part.n_filled - 1;
    if (is_last) {
      plan.n_done[column] = 0;
    }
    __threadfence();
  }
  __syncthreads();
  if (!is_last) {
    return;
  }
  merge_parts<kDim, kQueries>(partials, part.n_filled, part.n_queries, part.out,
                              plan.sums + part.first_sum, of_warps);
}

// What a call of the kernel is given, beside the plan.
struct DecodeLaunch {
  cache::RowType type;
  int n_queries;  // of the fullest pass
  int first_column;
  int n_columns;
  int n_parts;
  int part_length;  // the longest
  float scale;
  cudaStream_t stream;
};

template <class T, int kDim, int kQueries>
void launch_decode(const DecodeParts& plan, const DecodeLaunch& launch) {
  using Rows = DecodeRows<kDim>;
  // Behind the stages the queries and the weights. A merge has a factor for each part and query in the stages.
  const auto bytes_for = [](int part_length) {
    return Rows::kStages * Rows::kStageBytes + QueryFragments<T, kDim>::kBytes +
           static_cast<size_t>(part_length) * kQueries * sizeof(float);
  };
  auto* const kernel = &attend_decode_kernel<T, kDim, kQueries>;
  static const bool is_prepared = [&] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(bytes_for(kMaxPartLength))),
          "preparing attention");
    return true;
  }();
  static_cast<void>(is_prepared);
  kernel<<<static_cast<unsigned>(launch.n_parts * launch.n_columns), kDecodeThreads,
           bytes_for(launch.part_length), launch.stream>>>(plan, launch.first_column,
                                                           launch.n_columns, launch.scale);
  check(cudaGetLastError(), "attending");
}

template <int kDim>
void start_decode(const DecodeParts& plan, const DecodeLaunch& launch) {
  const auto with_queries = [&](auto element) {
    using T = decltype(element);
    switch (padded_queries(launch.n_queries)) {
      case 1:
        return launch_decode<T, kDim, 1>(plan, launch);
      case 2:
        return launch_decode<T, kDim, 2>(plan, launch);
      case 4:
        return launch_decode<T, kDim, 4>(plan, launch);
      default:
        return launch_decode<T, kDim, 8>(plan, launch);
    }
  };
  if (launch.type == cache::RowType::kF16) {
    with_queries(__half());
  } else {
    with_queries(__nv_bfloat16());
  }
}

// One file each, since compiling them takes longest.
void start_decode_64(const DecodeParts& plan, const DecodeLaunch& launch);
void start_decode_80(const DecodeParts& plan, const DecodeLaunch& launch);
void start_decode_96(const DecodeParts& plan, const DecodeLaunch& launch);
void start_decode_128(const DecodeParts& plan, const DecodeLaunch& launch);
void start_decode_256(const DecodeParts& plan, const DecodeLaunch& launch);

}  // namespace winnow::kernels::cuda
