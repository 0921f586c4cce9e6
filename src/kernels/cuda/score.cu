// Static scores of keys that are read again: one read of the keys is all that it costs.

#include "base/error.h"
#include "kernels/cuda/async_rows.cuh"
#include "kernels/cuda/check.h"
#include "kernels/cuda/device_rows.h"
#include "kernels/cuda/dispatch.cuh"
#include "kernels/cuda/rows.cuh"

namespace winnow::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kLanesPerRow = 4;  // each has 8 of the 32 chains, and reads 8 elements at a time
constexpr int kChunk = kThreads / kLanesPerRow;  // rows

// Chunks that are on their way to a block. A multiprocessor wants some 100 KiB under way, whatever the size of a row.
constexpr int stages_of(size_t row_bytes) {
  const size_t n = (size_t{64} << 10) / (kChunk * row_bytes);
  return n < 2 ? 2 : n > 8 ? 8 : static_cast<int>(n);
}

// scores [n] of one head, from its filter or, without one, of the squares.
//
// Mapping: blockIdx.y = head, blockIdx.x = rows_per_block rows of it, which pass through shared memory in chunks; four lanes
// a row. Bytes: the keys once, 4 written a row. Limited by memory: about 2 instructions an element, 15 % of what can be issued.
template <class T, int kDim, bool kHasFilter>
__global__ void __launch_bounds__(kThreads)
    score_kernel(const HeadArrays* heads, const float* filters, float sign, int rows_per_block) {
  constexpr int kSteps = (kDim + 31) / 32;
  constexpr size_t kRowBytes = kDim * sizeof(T);
  constexpr int kStages = stages_of(kRowBytes);
  extern __shared__ __align__(128) std::byte stages[];
  __shared__ Arrival arrivals[kStages];
  const HeadArrays head = heads[blockIdx.y];
  const int begin = static_cast<int>(blockIdx.x) * rows_per_block;
  const int n_rows = min(head.n - begin, rows_per_block);
  if (n_rows <= 0) {
    return;
  }
  const int n_chunks = (n_rows + kChunk - 1) / kChunk;
  const auto fetch = [&](int chunk) {
    const int first = chunk * kChunk;
    const auto bytes = static_cast<uint32_t>(min(kChunk, n_rows - first) * kRowBytes);
    Arrival& arrival = arrivals[chunk % kStages];
    arrival.expect(bytes);
    arrival.fetch(stages + chunk % kStages * kChunk * kRowBytes,
                  head.keys + static_cast<size_t>(begin + first) * kRowBytes, bytes);
  };
  if (threadIdx.x == 0) {
    for (Arrival& arrival : arrivals) {
      arrival.init();
    }
    fence_arrivals();
    for (int chunk = 0; chunk < min(kStages, n_chunks); ++chunk) {
      fetch(chunk);
    }
  }
  const int lane = static_cast<int>(threadIdx.x) % kLanesPerRow;
  const int row = static_cast<int>(threadIdx.x) / kLanesPerRow;
  float filter[kSteps][8];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int d = step * 32 + lane * 8 + i;
      filter[step][i] = kHasFilter && d < kDim ? filters[blockIdx.y * kDim + d] : 0.0F;
    }
  }
  __syncthreads();
  for (int chunk = 0; chunk < n_chunks; ++chunk) {
    arrivals[chunk % kStages].wait(chunk / kStages);
    const std::byte* const from =
        stages + (chunk % kStages * kChunk + row) * kRowBytes + lane * 8 * sizeof(T);
    float chains[8] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      // Behind the end of a row whose size is no multiple of 32 the chains go on with zeros.
      const bool is_inside = step * 32 + lane * 8 < kDim;
      float x[8];
      to_floats(is_inside ? load_eight<T>(from + step * 32 * sizeof(T)) : zero_eight<T>(), x);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        chains[i] = __fmaf_rn(x[i], kHasFilter ? filter[step][i] : x[i], chains[i]);
      }
    }
    const float sum = fold_chains(chains, lane);
    const int of_block = chunk * kChunk + row;
    if (lane == 0 && of_block < n_rows) {
      head.scores[begin + of_block] = sign * sum;
    }
    __syncthreads();
    if (threadIdx.x == 0 && chunk + kStages < n_chunks) {
      fetch(chunk + kStages);
    }
  }
}

// Few rows are shared out in one round of two blocks a multiprocessor, which begin and end together.
int rows_per_block(const Heads& heads) {
  const int64_t n_rows = static_cast<int64_t>(heads.n_heads) * heads.most_rows;
  int rows = 2048;
  while (rows > kChunk && n_rows / rows < 2 * device_limits().n_multiprocessors * 9 / 10) {
    rows /= 2;
  }
  return rows;
}

template <class T, int kDim, bool kHasFilter>
void launch(dim3 grid, const HeadArrays* heads, const float* filters, float sign, int rows,
            const Stream& stream) {
  constexpr size_t kRowBytes = kDim * sizeof(T);
  constexpr size_t kBytes = stages_of(kRowBytes) * kChunk * kRowBytes;
  auto* const kernel = &score_kernel<T, kDim, kHasFilter>;
  static const bool is_prepared = [kernel] {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kBytes)),
          "preparing scores");
    return true;
  }();
  static_cast<void>(is_prepared);
  kernel<<<grid, kThreads, kBytes, stream.get()>>>(heads, filters, sign, rows);
}

void start(const RowFormat& format, const Heads& heads, const float* filters, float sign,
           const Stream& stream) {
  check_head_dim(format.head_dim);
  if (heads.n_heads == 0 || heads.most_rows == 0) {
    return;
  }
  const int rows = rows_per_block(heads);
  const dim3 grid(static_cast<unsigned>((heads.most_rows + rows - 1) / rows),
                  static_cast<unsigned>(heads.n_heads));
  with_row_type(format.key_type, [&](auto element) {
    using T = decltype(element);
    with_head_dim(format.head_dim, [&](auto dim) {
      constexpr int kDim = decltype(dim)::value;
      if (filters != nullptr) {
        launch<T, kDim, true>(grid, heads.heads, filters, sign, rows, stream);
      } else {
        launch<T, kDim, false>(grid, heads.heads, nullptr, sign, rows, stream);
      }
    });
  });
  check(cudaGetLastError(), "scoring rows");
}

__device__ const float* beside_rows(const HeadArrays& head, float /*type*/) {
  return head.scores;
}
__device__ const long long* beside_rows(const HeadArrays& head, long long /*type*/) {
  return head.mass;
}

// Mapping: blockIdx.y = head, a thread a row.
template <class Number>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const HeadArrays* heads, Number* to, size_t stride) {
  const HeadArrays head = heads[blockIdx.y];
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row < head.n) {
    to[blockIdx.y * stride + row] = beside_rows(head, Number())[row];
  }
}

template <class Number>
void gather(const Heads& heads, Number* to, size_t stride, const Stream& stream) {
  if (heads.n_heads == 0 || heads.most_rows == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>((heads.most_rows + kThreads - 1) / kThreads),
                  static_cast<unsigned>(heads.n_heads));
  gather_kernel<<<grid, kThreads, 0, stream.get()>>>(heads.heads, to, stride);
  check(cudaGetLastError(), "gathering what is beside rows");
}

}  // namespace

void gather_scores(const Heads& heads, float* to, size_t stride, const Stream& stream) {
  gather(heads, to, stride, stream);
}

void gather_mass(const Heads& heads, long long* to, size_t stride, const Stream& stream) {
  gather(heads, to, stride, stream);
}

void score_norms(const RowFormat& format, const Heads& heads, float sign, const Stream& stream) {
  start(format, heads, nullptr, sign, stream);
}

void score_dots(const RowFormat& format, const Heads& heads, const float* filters,
                const Stream& stream) {
  WINNOW_CHECK(filters != nullptr);
  start(format, heads, filters, 1.0F, stream);
}

}  // namespace winnow::kernels::cuda
