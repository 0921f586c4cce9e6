// Scores once more, and from them weights, each row's summed over all queries that see it.

#include <algorithm>
#include <climits>

#include "base/error.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/column_mass.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/prompt_tiles.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kRows = 2 * kPromptPositions;  // of a block

template <class T, int kDim>
constexpr size_t shared_bytes() {
  using Tile = PromptTile<T, kDim>;
  return Tile::kQueryBytes + kRows * Tile::kRowBytes;
}

// What a lane's weights are made with.
struct LaneWeights {
  float score_scale;
  float base;
  float factor;  // of exp(score - base), to units
  int pos;
};

// Mapping: blockIdx.y = one head, blockIdx.x = so many times 128 of its rows; eight warps of 64 rows × 16 lanes. Keys stay in shared
// memory while the queries of 64 lanes at a time pass through it, or the other way round where there are no more lanes. Flops: 2 an
// element, row and lane, times 2 (f16) or 3 (bf16) parts; some 20 instructions a row and lane for weights and their sums in 64 bits,
// which are the limit for heads of 64 and 128.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, kDim <= 128 ? 2 : 1)
    mass_kernel(const MassHead* heads, int group, size_t token_stride, float scale, float unit,
                int tiles_per_block) {
  using Tile = PromptTile<T, kDim>;
  constexpr int kStride = Tile::kStride;
  extern __shared__ __align__(128) std::byte shared[];
  auto* const queries = reinterpret_cast<T*>(shared);  // [kParts, kPromptLanes, kStride]
  auto* const keys = reinterpret_cast<T*>(shared + Tile::kQueryBytes);  // [kRows, kStride]
  __shared__ LaneWeights weights[kPromptLanes];
  __shared__ int positions[kRows];
  __shared__ long long sums[kThreads / 32][kPromptPositions];

  const MassHead head = heads[blockIdx.y];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;
  const int first_of_warp = warp / 4 * kPromptPositions;  // row of the block
  const int lane_of_warp = warp % 4 * 16;
  const int n_lanes = head.n_tokens * group;

  const auto fetch_keys = [&](int first_row) {
    constexpr int kPieces = kDim / 8;  // of 16 bytes
#pragma unroll 1                       // addresses that stay would take registers
    for (int i = thread; i < kRows * kPieces; i += kThreads) {
      const int row = i / kPieces;
      const int d = i % kPieces * 8;
      const bool is_there = first_row + row < head.n;
      const size_t from = static_cast<size_t>(is_there ? first_row + row : 0) * kDim + d;
      fetch_16(keys + row * kStride + d, head.keys + from * sizeof(T), is_there);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
    if (thread < kRows) {  // no query sees what is not there
      const int row = first_row + thread;
      const bool is_seen =
          row < head.n && (head.hidden == nullptr || head.hidden[row] == cache::kVisible);
      positions[thread] = is_seen ? __ldg(head.positions + row) : INT_MAX;
    }
  };
  // By four neighbouring threads a lane.
  const auto stage_lanes = [&](int first_lane) {
    const int of_tile = thread / 4;
    const int of_head = first_lane + of_tile;
    const bool is_lane = of_head < n_lanes;
    const int token = is_lane ? of_head / group : 0;
    const int place = head.n_ring > 0 ? (head.first_pos + token) % head.n_ring : token;
    const float* const q = head.q + static_cast<size_t>(place) * token_stride +
                           static_cast<size_t>(is_lane ? of_head % group : 0) * kDim;
    const float query_scale =
        stage_query<T, kDim, 1>(is_lane ? q : nullptr, lane, queries + of_tile * kStride);
    if (thread % 4 == 0) {
      LaneWeights of_lane{0.0F, 0.0F, 0.0F, -1};
      if (is_lane) {
        const WeightSum sum = head.sums[of_head];
        of_lane = {query_scale * scale, sum.highest == -INFINITY ? 0.0F : sum.highest,
                   unit / sum.sum, head.first_pos + token};
      }
      weights[of_tile] = of_lane;
    }
  };

  int staged = -1;  // the first of the lanes in shared memory
  for (int tile = 0; tile < tiles_per_block; ++tile) {
    const int first_row = (static_cast<int>(blockIdx.x) * tiles_per_block + tile) * kRows;
    if (first_row >= head.n) {
      return;
    }
    fetch_keys(first_row);
    // Tokens before the first row see none of them.
    const int first_token = max(__ldg(head.positions + first_row) - head.first_pos, 0);
    long long mass[8][2] = {};
    for (int base = first_token * group / kPromptLanes * kPromptLanes; base < n_lanes;
         base += kPromptLanes) {
      if (staged != base) {
        __syncthreads();  // the last queries are done with
        stage_lanes(base);
        staged = base;
      }
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      __syncthreads();
      float scores[8][4] = {};
      score_tile<T, kDim, 2>(queries + lane_of_warp * kStride, keys + first_of_warp * kStride, lane,
                             scores);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const LaneWeights of_lane = weights[lane_of_warp + lane / 4 + 8 * i];
#pragma unroll
        for (int block = 0; block < 8; ++block) {
          const int2 of_rows =
              *reinterpret_cast<const int2*>(positions + first_of_warp + block * 8 + lane % 4 * 2);
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float score = scores[block][2 * i + j] * of_lane.score_scale;
            const float units = exp_nonpositive(score - of_lane.base) * of_lane.factor;
            const bool counts = (j == 0 ? of_rows.x : of_rows.y) <= of_lane.pos && !isnan(units);
            mass[block][j] += counts ? __float2ll_rn(units) : 0;
          }
        }
      }
    }
    // Over the eight lanes that a warp's columns are spread over, then over its four warps.
#pragma unroll
    for (int block = 0; block < 8; ++block) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
#pragma unroll
        for (int offset = 4; offset < 32; offset *= 2) {
          mass[block][j] += __shfl_xor_sync(kAllLanes, mass[block][j], offset);
        }
        if (lane < 4) {
          sums[warp][block * 8 + lane * 2 + j] = mass[block][j];
        }
      }
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();  // also: keys and sums of this tile are done with
    const int row = first_row + thread;
    if (thread < kRows && row < head.n) {
      const int first_warp = thread / kPromptPositions * 4;
      const int column = thread % kPromptPositions;
      long long sum = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sum += sums[first_warp + i][column];
      }
      const long long held = head.decay == 0.0F ? 0 : head.mass[row];
      head.mass[row] = sum + (head.decay == 1.0F || head.decay == 0.0F
                                  ? held
                                  : static_cast<long long>(static_cast<double>(held) *
                                                           static_cast<double>(head.decay)));
    }
  }
}

template <class T, int kDim>
void launch(dim3 grid, const MassHead* heads, int group, size_t token_stride, float scale,
            float unit, int tiles_per_block, cudaStream_t stream) {
  constexpr size_t kBytes = shared_bytes<T, kDim>();
  auto* const kernel = &mass_kernel<T, kDim>;
  static const bool is_prepared = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kBytes)),
          "preparing column mass");
    return true;
  }();
  static_cast<void>(is_prepared);
  kernel<<<grid, kThreads, kBytes, stream>>>(heads, group, token_stride, scale, unit,
                                             tiles_per_block);
}

}  // namespace

void add_mass(const DecodeShape& shape, int group, double unit, const MassHead* heads, int n,
              int most_tokens, int most_rows, const Stream& stream) {
  check_attended(shape.format);
  if (n == 0 || most_rows == 0) {
    return;
  }
  // Queries that stay are cut into parts once for several tiles of keys.
  const int n_tiles = (most_rows + kRows - 1) / kRows;
  const int most_blocks = 4 * device_limits().n_multiprocessors;
  const int tiles_per_block =
      most_tokens * group > kPromptLanes ? 1 : std::clamp(n_tiles * n / most_blocks, 1, 8);
  const dim3 grid(static_cast<unsigned>((n_tiles + tiles_per_block - 1) / tiles_per_block),
                  static_cast<unsigned>(n));
  const size_t token_stride = static_cast<size_t>(shape.gqa_group_size) *
                              static_cast<size_t>(shape.n_kv_heads) *
                              static_cast<size_t>(shape.format.head_dim);
  with_head_dim(shape.format.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    const auto start = [&](auto element) {
      launch<decltype(element), kDim>(grid, heads, group, token_stride, shape.scale,
                                      static_cast<float>(unit), tiles_per_block, stream.get());
    };
    if (shape.format.key_type == cache::RowType::kF16) {
      start(__half());
    } else {
      start(__nv_bfloat16());
    }
  });
  check(cudaGetLastError(), "adding up column mass");
}

}  // namespace winnow::kernels::cuda
