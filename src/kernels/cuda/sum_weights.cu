// What the weights of a window's queries sum up to: a product with each key and an exponential.

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/attend_prompt.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/prompt_tiles.cuh"
#include "kernels/cuda/warpgroup.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr int kThreads = kPromptThreads;              // a warpgroup
constexpr int kTiles = kSumsPart / kPromptPositions;  // of a part
constexpr int kMostParts = 4;                         // of a block

template <class T, int kDim>
struct SumTile {
  static constexpr int kParts = PromptTile<T, kDim>::kParts;
  static constexpr int kSteps = kDim / 16;
  static constexpr int kPanels = (kDim + kPanel - 1) / kPanel;
  static constexpr int kPanelBytes = 64 * kPanelRowBytes;
  static constexpr int kKeyBytes = kPanels * kPanelBytes;
  // Queries stay in registers where they leave enough of them, else in shared memory.
  static constexpr bool kInRegisters = kParts * kSteps <= 16;
  static constexpr int kStages = 3;
  static constexpr size_t kQueryBytes = kInRegisters ? 0 : size_t{kParts} * kKeyBytes;
  static constexpr size_t kSharedBytes = kQueryBytes + size_t{kStages} * kKeyBytes;
  static constexpr int kBlocks = kSharedBytes <= (size_t{64} << 10) ? 3 : 1;  // a multiprocessor
};

// The number of rows at positions below `pos`, by all threads of a block together.
__device__ __forceinline__ int rows_below(const PromptHead& head, int pos) {
  int low = 0;
  int high = head.n;
  while (low < high) {
    const int step = (high - low + kThreads - 1) / kThreads;
    const int at = low + static_cast<int>(threadIdx.x) * step;
    const int n_below = __syncthreads_count(at < high && __ldg(head.positions + at) < pos);
    const int first = low;
    low = n_below == 0 ? first : first + (n_below - 1) * step + 1;
    high = n_below == 0 ? first : min(first + n_below * step, high);
  }
  return low;
}

// What one thread's weights of one lane sum up to, relative to its highest product.
struct LaneSum {
  float highest = -INFINITY;
  float sum = 0.0F;

  // `factor`: what products are multiplied with, for exponents of 2.
  __device__ __forceinline__ void merge(const LaneSum& other, float factor) {
    const float most = fmaxf(highest, other.highest);
    const float base = most == -INFINITY ? 0.0F : most;
    const float mine = sum * exp2_quick((highest - base) * factor);
    sum = mine + other.sum * exp2_quick((other.highest - base) * factor);
    highest = most;
  }
};

// Mapping: blockIdx.x = 64 tokens of query head blockIdx.y, one warpgroup; blockIdx.z = up to kMostParts parts of kSumsPart positions,
// whose tiles of 64 pass through shared memory, each row where its position says: so hidden rows and evicted ones leave the same bits.
// Flops: 2 an element, row and lane, times 2 (f16)
// or 3 (bf16) parts; they are the limit, beside five instructions for each weight.
template <class T, int kDim>
__global__ void __launch_bounds__(kThreads, SumTile<T, kDim>::kBlocks)
    sum_weights_kernel(const PromptHead* heads, int n_heads, float scale, int n_parts,
                       int parts_of_block) {
  using Tile = SumTile<T, kDim>;
  constexpr int kParts = Tile::kParts;
  constexpr int kSteps = Tile::kSteps;
  extern __shared__ __align__(1024) std::byte shared[];
  std::byte* const queries = shared;  // [kParts, kPanels] panels, where they are not in registers
  std::byte* const stages = shared + Tile::kQueryBytes;
  __shared__ int16_t
      row_of[kMostParts * kSumsPart];  // from the first one on; -1: none that is seen
  __shared__ uint32_t seen[kMostParts * kSumsPart / 32];

  const PromptHead head = heads[blockIdx.y];
  const int first_token = static_cast<int>(blockIdx.x) * kPromptLanes;
  const int first_part = static_cast<int>(blockIdx.z) * parts_of_block;
  const int n_of_block = min(parts_of_block, n_parts - first_part);
  const int begin = first_part * kSumsPart;
  const int n_positions = n_of_block * kSumsPart;
  if (first_token >= head.n_tokens) {
    return;
  }
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int lane = thread % 32;

  // This thread's quarter of two of the warp's 16 queries.
  uint4 matrices[Tile::kInRegisters ? kParts : 1][Tile::kInRegisters ? kSteps : 1];
  int pos[2];
  float up[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = warp * 16 + lane / 4 + 8 * i;
    const int token = first_token + row;
    const bool is_lane = token < head.n_tokens;
    pos[i] = is_lane ? head.first_pos + token : -1;
    const int place = head.n_ring > 0 ? (head.first_pos + token) % head.n_ring : token;
    const float* const q = head.q + static_cast<size_t>(is_lane ? place : 0) * n_heads * kDim;
    const auto load = [&](int step, int half) {
      return is_lane
                 ? __ldg(reinterpret_cast<const float2*>(q + step * 16 + half * 8 + lane % 4 * 2))
                 : make_float2(0, 0);
    };
    float most = 0.0F;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 x = load(step, half);
        most = fmaxf(most, fmaxf(fabsf(x.x), fabsf(x.y)));
      }
    }
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(kAllLanes, most, 2));
    const QueryScale query_scale(most);
    up[i] = query_scale.up();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float2 x = load(step, half);
        T parts[2][kParts];
        split(x.x * query_scale.down(), parts[0]);
        split(x.y * query_scale.down(), parts[1]);
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
          const uint32_t two = pack(parts[0][part], parts[1][part]);
          if constexpr (Tile::kInRegisters) {
            uint4& m = matrices[part][step];
            (i == 0 ? (half == 0 ? m.x : m.z) : (half == 0 ? m.y : m.w)) = two;
          } else {
            const int piece = step % 4 * 2 + half;
            *reinterpret_cast<uint32_t*>(queries + part * Tile::kKeyBytes +
                                         step / 4 * Tile::kPanelBytes + swapped(row, piece) +
                                         lane % 4 * 4) = two;
          }
        }
      }
    }
  }

  // The rows of the parts.
  const int first_row = rows_below(head, begin);
  for (int i = thread; i < n_positions; i += kThreads) {
    row_of[i] = -1;
  }
  __syncthreads();
  for (int row = first_row + thread; row < min(first_row + n_positions, head.n); row += kThreads) {
    const int at = __ldg(head.positions + row) - begin;
    if (at < n_positions && (head.hidden == nullptr || head.hidden[row] == cache::kVisible)) {
      row_of[at] = static_cast<int16_t>(row - first_row);
    }
  }
  __syncthreads();
  for (int i = thread; i < n_positions; i += kThreads) {
    const uint32_t word = __ballot_sync(kAllLanes, row_of[i] >= 0);
    if (lane == 0) {
      seen[i / 32] = word;
    }
  }
  const int n_tiles = n_of_block * kTiles;
  const int first_pos = head.first_pos + first_token;
  const std::byte* const keys = head.keys + static_cast<size_t>(first_row) * kDim * sizeof(T);
  const auto stage_of = [&](int tile) { return stages + tile % Tile::kStages * Tile::kKeyBytes; };
  const auto fetch = [&](int tile) {
    constexpr int kPieces = kDim / 8;  // of 16 bytes
    constexpr int kOfThread = kPromptPositions * kPieces / kThreads;
    std::byte* const stage = stage_of(tile);
    const int16_t* const rows = row_of + tile * kPromptPositions;
    if (tile < n_tiles) {
#pragma unroll
      for (int i = 0; i < kOfThread; ++i) {
        const int place = kThreads % kPieces == 0 ? thread / kPieces + i * (kThreads / kPieces)
                                                  : (thread + i * kThreads) / kPieces;
        const int piece =
            kThreads % kPieces == 0 ? thread % kPieces : (thread + i * kThreads) % kPieces;
        const int row = rows[place];
        fetch_16(stage + piece / 8 * Tile::kPanelBytes + swapped(place, piece % 8),
                 keys + static_cast<uint32_t>(max(row, 0) * kDim + piece * 8) * sizeof(T),
                 row >= 0);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  };

  LaneSum sums[2];
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    constexpr double kLog2E = 1.4426950408889634;
    factor[i] = static_cast<float>(static_cast<double>(up[i]) * scale * kLog2E);  // as LaneTerms
  }
  float products[8][4];
  const auto begin_tile = [&](int tile) {
    const uint64_t of_tile = describe_panel(shared_address(stage_of(tile)));
    begin_products();
#pragma unroll
    for (int part = kParts - 1; part >= 0; --part) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        const int at = (step / 4 * Tile::kPanelBytes + step % 4 * 32) / 16;
        const bool adds = part < kParts - 1 || step > 0;
        if constexpr (Tile::kInRegisters) {
          multiply_rows(products, matrices[part][step], of_tile + at, adds, T());
        } else {
          const uint64_t of_queries =
              describe_panel(shared_address(queries)) + part * Tile::kKeyBytes / 16;
          multiply_rows(products, of_queries + at, of_tile + at, adds, T());
        }
      }
    }
    submit_products();
  };
  const auto add_tile = [&](int tile) {
    const int at = begin + tile * kPromptPositions;
    const uint64_t there = static_cast<uint64_t>(seen[2 * tile + 1]) << 32 | seen[2 * tile];
    const bool is_open = there == ~uint64_t{0} && at + kPromptPositions <= first_pos + 1;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (!is_open) {
        const uint64_t of_lane = there & bits_below(pos[i] + 1 - at);
#pragma unroll
        for (int block = 0; block < 8; ++block) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& product = products[block][2 * i + j];
            const bool is_seen = (of_lane >> (block * 8 + lane % 4 * 2 + j) & 1) != 0;
            product = is_seen ? product : -INFINITY;
          }
        }
      }
      float most = sums[i].highest;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        most = fmaxf(most, fmaxf(products[block][2 * i], products[block][2 * i + 1]));
      }
      const float base = most == -INFINITY ? 0.0F : most;
      sums[i].sum *= exp2_quick((sums[i].highest - base) * factor[i]);
      sums[i].highest = most;
      float even = 0.0F;
      float odd = 0.0F;
#pragma unroll
      for (int block = 0; block < 8; ++block) {
        even += exp2_quick((products[block][2 * i] - base) * factor[i]);
        odd += exp2_quick((products[block][2 * i + 1] - base) * factor[i]);
      }
      sums[i].sum += even + odd;
    }
  };
  // Of the part that has ended, by the four threads of a lane together.
  const auto write_sums = [&](int part) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int offset = 1; offset < 4; offset *= 2) {
        const LaneSum other{__shfl_xor_sync(kAllLanes, sums[i].highest, offset),
                            __shfl_xor_sync(kAllLanes, sums[i].sum, offset)};
        // The lower thread's first, so that all four have the same bits.
        LaneSum merged = (lane & offset) == 0 ? sums[i] : other;
        merged.merge((lane & offset) == 0 ? other : sums[i], factor[i]);
        sums[i] = merged;
      }
      const int token = first_token + warp * 16 + lane / 4 + 8 * i;
      if (lane % 4 == 0 && token < head.n_tokens) {
        head.sums[static_cast<size_t>(part) * head.n_tokens + token] = {
            sums[i].highest * (up[i] * scale), sums[i].sum};
      }
      sums[i] = LaneSum();
    }
  };
  // Until a tile has arrived, for all; the one before is done with.
  const auto await_tile = [&] {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    publish_to_products();
    __syncthreads();
  };

  publish_to_products();
  __syncthreads();
  fetch(0);
  fetch(1);
  for (int tile = 0; tile < n_tiles; ++tile) {
    await_tile();
    begin_tile(tile);
    fetch(tile + 2);
    await_products(products);
    add_tile(tile);
    if (tile % kTiles == kTiles - 1) {
      write_sums(first_part + tile / kTiles);
    }
  }
  asm volatile("cp.async.wait_group 0;" ::: "memory");
}

// Mapping: block = head, thread = one token; parts in order, to the first of them.
__global__ void merge_sums_kernel(const PromptHead* heads, int n_parts) {
  const PromptHead head = heads[blockIdx.x];
  for (int token = static_cast<int>(threadIdx.x); token < head.n_tokens;
       token += static_cast<int>(blockDim.x)) {
    const auto of_part = [&](int part) {
      return head.sums[static_cast<size_t>(part) * head.n_tokens + token];
    };
    float highest = -INFINITY;
    for (int part = 0; part < n_parts; ++part) {
      highest = fmaxf(highest, of_part(part).highest);
    }
    const float base = highest == -INFINITY ? 0.0F : highest;
    float sum = 0.0F;
    for (int part = 0; part < n_parts; ++part) {
      const float factor = exp_nonpositive(of_part(part).highest - base);
      sum = factor == 0.0F ? sum : __fmaf_rn(of_part(part).sum, factor, sum);
    }
    head.sums[token] = {highest, sum};
  }
}

template <class T, int kDim>
void launch_sums(const PromptHead* heads, int n_heads, float scale, int n_parts, dim3 grid,
                 cudaStream_t stream) {
  constexpr size_t kBytes = SumTile<T, kDim>::kSharedBytes;
  auto* const kernel = &sum_weights_kernel<T, kDim>;
  static const bool is_prepared = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kBytes)),
          "preparing a window's sums");
    return true;
  }();
  static_cast<void>(is_prepared);
  // As many parts a block as leave kBlocks for each multiprocessor.
  const int n_blocks = static_cast<int>(grid.x * grid.y) * n_parts;
  const int parts_of_block = std::clamp(
      (n_blocks - 1) / (SumTile<T, kDim>::kBlocks * device_limits().n_multiprocessors) + 1, 1,
      kMostParts);
  grid.z = static_cast<unsigned>((n_parts + parts_of_block - 1) / parts_of_block);
  kernel<<<grid, kThreads, kBytes, stream>>>(heads, n_heads, scale, n_parts, parts_of_block);
  check(cudaGetLastError(), "summing up weights");
}

}  // namespace

void sum_weights(const DecodeShape& shape, const PromptHead* heads, int n, int most_tokens,
                 int n_parts, const Stream& stream) {
  check_attended(shape.format);
  if (n == 0 || most_tokens == 0 || n_parts == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>((most_tokens + kPromptLanes - 1) / kPromptLanes),
                  static_cast<unsigned>(n));
  const int n_heads = shape.gqa_group_size * shape.n_kv_heads;
  with_head_dim(shape.format.head_dim, [&](auto dim) {
    constexpr int kDim = decltype(dim)::value;
    if (shape.format.key_type == cache::RowType::kF16) {
      launch_sums<__half, kDim>(heads, n_heads, shape.scale, n_parts, grid, stream.get());
    } else {
      launch_sums<__nv_bfloat16, kDim>(heads, n_heads, shape.scale, n_parts, grid, stream.get());
    }
  });
  if (n_parts > 1) {
    constexpr int kMergeThreads = 64;
    merge_sums_kernel<<<static_cast<unsigned>(n), kMergeThreads, 0, stream.get()>>>(heads, n_parts);
    check(cudaGetLastError(), "summing up weights");
  }
}

}  // namespace winnow::kernels::cuda
