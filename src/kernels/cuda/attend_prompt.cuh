// The kernel that attends for prompts; attend_prompt_*.cu compile it for their head sizes.
#pragma once

#include <climits>

#include "kernels/blocks.h"
#include "kernels/cuda/attend_prompt.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/prompt_tiles.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/score_tiles.cuh"

namespace winnow::kernels::cuda {

// Mapping: blockIdx.y = one head of one sequence, blockIdx.x = 64 lanes (token-major, as in kernels/attend.h), the last ones
// first; four warps of 16 lanes. Tiles of 64 positions pass through shared memory; where two fit, the next is on its way while one
// is computed, and the positions of the one after. Flops: 4 an element, row and lane, times 2 (f16) or 3 (bf16) parts. Limited by
// tensor cores and what feeds them.
template <class T, int kDim>
__global__ void __launch_bounds__(kPromptThreads)
    attend_prompt_kernel(const PromptHead* heads, int group, int n_heads, float scale) {
  using Tile = PromptTile<T, kDim>;
  constexpr int kParts = Tile::kParts;
  constexpr int kStride = Tile::kStride;
  constexpr float kWeightScale =
      4096.0F;  // so that the last part of a small weight is no subnormal number
  constexpr int kStages = Tile::kStages;
  extern __shared__ __align__(128) std::byte shared[];
  auto* const queries = reinterpret_cast<T*>(shared);  // [kParts, kPromptLanes, kStride]
  auto* const stages = reinterpret_cast<T*>(shared + Tile::kQueryBytes);
  __shared__ TileRows tiles[2];

  const PromptHead head = heads[blockIdx.y];
  const int n_lanes = head.n_tokens * group;
  const int n_blocks = (n_lanes + kPromptLanes - 1) / kPromptLanes;
  if (static_cast<int>(blockIdx.x) >= n_blocks) {
    return;
  }
  const int first_lane = (n_blocks - 1 - static_cast<int>(blockIdx.x)) * kPromptLanes;
  const int last_lane = min(first_lane + kPromptLanes, n_lanes) - 1;
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const size_t token_stride = static_cast<size_t>(n_heads) * kDim;

  // This thread's two rows of the warp's 16.
  int pos[2];
  size_t at[2];
  float score_scale[2];
  bool is_lane[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int of_slice = first_lane + warp * 16 + lane / 4 + 8 * i;
    is_lane[i] = of_slice < n_lanes;
    const int token = is_lane[i] ? of_slice / group : 0;
    pos[i] = is_lane[i] ? head.first_pos + token : -1;
    const int place = head.n_ring > 0 ? (head.first_pos + token) % head.n_ring : token;
    at[i] =
        static_cast<size_t>(place) * token_stride + static_cast<size_t>(of_slice % group) * kDim;
    score_scale[i] =
        scale * stage_query<T, kDim>(is_lane[i] ? head.q + at[i] : nullptr, lane,
                                     queries + (warp * 16 + lane / 4 + 8 * i) * kStride);
  }

  const bool skips_zeros = *head.n_nonfinite_values != 0;
  const int first_token_pos = head.first_pos + first_lane / group;
  const int last_pos = head.first_pos + last_lane / group;
  const int first_tile = first_visible(first_token_pos, head.swa_window) / kPromptPositions;
  const int last_tile = last_pos / kPromptPositions;

  // The first row of the first tile.
  int row_of_tile = 0;
  for (int high = head.n; row_of_tile < high;) {
    const int middle = (row_of_tile + high) / 2;
    if (head.positions[middle] < first_tile * kPromptPositions) {
      row_of_tile = middle + 1;
    } else {
      high = middle;
    }
  }

  // What the next tile's rows may be, a row for each of the first 64 threads.
  int next_pos = INT_MAX;
  bool next_is_visible = true;
  const auto look_at = [&](int first_row) {
    const int row = first_row + thread;
    const bool is_row = thread < kPromptPositions && row < head.n;
    next_pos = is_row ? __ldg(head.positions + row) : INT_MAX;
    next_is_visible = !is_row || head.hidden == nullptr || head.hidden[row] == cache::kVisible;
  };
  const auto note = [&](int tile) {
    TileRows& rows = tiles[tile % 2];
    const int place = next_pos - tile * kPromptPositions;
    if (thread < kPromptPositions && next_pos != INT_MAX && place < kPromptPositions) {
      atomicOr(&rows.there[place / 32], 1U << (place % 32));
      if (next_is_visible) {
        atomicOr(&rows.visible[place / 32], 1U << (place % 32));
      }
    }
  };
  const auto forget = [&](int tile) {
    if (thread == 0) {
      tiles[tile % 2] = {};
    }
  };
  const auto stage_of = [&](int tile) {
    return stages + tile % kStages * (Tile::kStageBytes / sizeof(T));
  };
  // Keys, then values, each where its position says.
  const auto fetch = [&](int tile, int first_row) {
    constexpr int kPieces = kDim / 8;  // of 16 bytes
    const uint64_t there = both(tiles[tile % 2].there);
    const uint64_t visible = both(tiles[tile % 2].visible);
    T* const stage = stage_of(tile);
    for (int i = thread; i < kPromptPositions * kPieces; i += kPromptThreads) {
      const int place = i / kPieces;
      const int d = i % kPieces * 8;
      const bool is_seen = (visible >> place & 1) != 0;
      const size_t row = is_seen ? first_row + __popcll(there & bits_below(place)) : 0;
      const size_t from = (row * kDim + d) * sizeof(T);
      T* const to = stage + place * kStride + d;
      fetch_16(to, head.keys + from, is_seen);
      fetch_16(to + kPromptPositions * kStride, head.values + from, is_seen);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  float highest[2] = {-INFINITY, -INFINITY};
  float sums[2] = {};
  float outputs[kDim / 8][4] = {};

  const auto compute = [&](int tile) {
    const T* const keys = stage_of(tile);
    const T* const values = keys + kPromptPositions * kStride;
    float scores[8][4] = {};  // 16 lanes × 64 positions
    score_tile<T, kDim>(queries + warp * 16 * kStride, keys, lane, scores);
    // Weights, from the highest score so far.
    const int begin = tile * kPromptPositions;
    const uint64_t there = both(tiles[tile % 2].visible);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint64_t seen = there & bits_below(pos[i] + 1 - begin) &
                            ~bits_below(first_visible(max(pos[i], 0), head.swa_window) - begin);
      float most = highest[i];
#pragma unroll
      for (int block = 0; block < 8; ++block) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[block][2 * i + j];
          const bool is_seen = (seen >> (block * 8 + lane % 4 * 2 + j) & 1) != 0;
          score = is_seen ? score * score_scale[i] : -INFINITY;
          most = fmaxf(most, score);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
      most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
      const float base = most == -INFINITY ? 0.0F : most;
      const float factor = highest[i] == -INFINITY ? 0.0F : exp_nonpositive(highest[i] - base);
      highest[i] = most;
      float sum = 0.0F;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& score = scores[block][2 * i + j];
          score = exp_nonpositive(score - base) * kWeightScale;
          sum += score;
        }
      }
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      sums[i] = __fmaf_rn(sums[i], factor, sum);
      if (factor != 1.0F) {
#pragma unroll
        for (auto& of_block : outputs) {
          of_block[2 * i] = factor == 0.0F ? 0.0F : of_block[2 * i] * factor;
          of_block[2 * i + 1] = factor == 0.0F ? 0.0F : of_block[2 * i + 1] * factor;
        }
      }
    }
    if (skips_zeros) {  // a weight of 0 contributes nothing, even where a value is no number
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        for (int j = 0; j < 8; ++j) {
          const int from = lane / 4 * 4 + j / 2;
          float of_row[2];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            of_row[i] = __shfl_sync(
                kAllLanes, j % 2 == 0 ? scores[block][2 * i] : scores[block][2 * i + 1], from);
          }
          const T* const row = values + (block * 8 + j) * kStride + lane % 4 * 2;
#pragma unroll
          for (int d = 0; d < kDim / 8; ++d) {
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              if (of_row[e / 2] != 0.0F) {
                outputs[d][e] =
                    __fmaf_rn(of_row[e / 2], to_float(row[d * 8 + e % 2]), outputs[d][e]);
              }
            }
          }
        }
      }
      return;
    }
    // The registers that hold scores of two blocks of eight positions are those of a matrix of weights, but for their type.
    uint4 weights[4][kParts];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      T parts[8][kParts];
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        split(scores[2 * step + e / 4][e % 4], parts[e]);
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        weights[step][part] =
            make_uint4(pack(parts[0][part], parts[1][part]), pack(parts[2][part], parts[3][part]),
                       pack(parts[4][part], parts[5][part]), pack(parts[6][part], parts[7][part]));
      }
    }
    const uint32_t v_at =
        matrices_at(values + (lane / 8 % 2 * 8 + lane % 8) * kStride + lane / 16 * 8);
#pragma unroll
    for (int pair = 0; pair < kDim / 16; ++pair) {
      // Tensor cores round towards zero, so a tile is summed alone and then added.
      float of_tile[2][4] = {};
      uint4 v[4];
#pragma unroll
      for (int step = 0; step < 4; ++step) {
        v[step] =
            load_transposed(v_at + (step * 16 * kStride + pair * 16) * static_cast<int>(sizeof(T)));
      }
#pragma unroll
      for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          multiply(of_tile[0], weights[step][part], v[step].x, v[step].y, T());
          multiply(of_tile[1], weights[step][part], v[step].z, v[step].w, T());
        }
      }
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        outputs[2 * pair][e] += of_tile[0][e];
        outputs[2 * pair + 1][e] += of_tile[1][e];
      }
    }
  };

  const auto rows_in = [&](int tile) { return __popcll(both(tiles[tile % 2].there)); };
  forget(first_tile);
  forget(first_tile + 1);
  look_at(row_of_tile);
  __syncthreads();
  note(first_tile);
  __syncthreads();
  fetch(first_tile, row_of_tile);
  row_of_tile += rows_in(first_tile);
  look_at(row_of_tile);
  for (int tile = first_tile; tile <= last_tile; ++tile) {
    note(tile + 1);  // forgotten before
    if constexpr (kStages == 2) {
      __syncthreads();
      fetch(tile + 1, row_of_tile);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    const int first_row = row_of_tile;
    row_of_tile += rows_in(tile + 1);
    look_at(row_of_tile);
    compute(tile);
    __syncthreads();
    forget(tile);
    if constexpr (kStages == 1) {
      fetch(tile + 1, first_row);
    }
    __syncthreads();
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");

#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (!is_lane[i]) {
      continue;
    }
    if (lane % 4 == 0 && head.sums != nullptr) {
      const int of_slice = first_lane + warp * 16 + lane / 4 + 8 * i;
      head.sums[of_slice] = {highest[i], sums[i] / kWeightScale};
    }
    const auto divided = [&](float x) {
      return sums[i] == 0.0F ? 0.0F : x / sums[i] + 0.0F;  // -0 becomes +0
    };
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) {
      *reinterpret_cast<float2*>(head.out + at[i] + d * 8 + lane % 4 * 2) =
          make_float2(divided(outputs[d][2 * i]), divided(outputs[d][2 * i + 1]));
    }
  }
}

// What a call of the kernel is given, beside the heads.
struct PromptLaunch {
  cache::RowType type;
  int group;
  int n_heads;  // of the layer
  int n;        // of PromptHeads
  int most_tokens;
  float scale;
  cudaStream_t stream;
};

template <class T, int kDim>
void launch_prompt(const PromptHead* heads, const PromptLaunch& launch) {
  constexpr size_t kBytes = PromptTile<T, kDim>::kSharedBytes;
  auto* const kernel = &attend_prompt_kernel<T, kDim>;
  static const bool is_prepared = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kBytes)),
          "preparing attention");
    return true;
  }();
  static_cast<void>(is_prepared);
  const int n_lanes = launch.most_tokens * launch.group;
  const dim3 grid(static_cast<unsigned>((n_lanes + kPromptLanes - 1) / kPromptLanes),
                  static_cast<unsigned>(launch.n));
  kernel<<<grid, kPromptThreads, kBytes, launch.stream>>>(heads, launch.group, launch.n_heads,
                                                          launch.scale);
  check(cudaGetLastError(), "attending");
}

template <int kDim>
void start_prompt(const PromptHead* heads, const PromptLaunch& launch) {
  if (launch.type == cache::RowType::kF16) {
    launch_prompt<__half, kDim>(heads, launch);
  } else {
    launch_prompt<__nv_bfloat16, kDim>(heads, launch);
  }
}

// One file each, since compiling them takes longest.
void start_prompt_64(const PromptHead* heads, const PromptLaunch& launch);
void start_prompt_80(const PromptHead* heads, const PromptLaunch& launch);
void start_prompt_96(const PromptHead* heads, const PromptLaunch& launch);
void start_prompt_128(const PromptHead* heads, const PromptLaunch& launch);
void start_prompt_256(const PromptHead* heads, const PromptLaunch& launch);

}  // namespace winnow::kernels::cuda
