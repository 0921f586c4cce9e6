// Formulas of methods, a thread a row, in the order of operations that their scorers have.

#include <climits>

#include "kernels/attend.h"
#include "kernels/cuda/check.h"
#include "kernels/cuda/row_worth.h"

namespace winnow::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// What formulas of the last queries read of one head.
struct Window {
  const long long* mass;  // [group, stride]
  size_t stride;
  int group;
  int n_rows;  // that are pooled
};

// What one query head gives a row, of a window's queries.
__device__ __forceinline__ float attention(const RowFormula& formula, const Window& window,
                                           int head, int row) {
  return static_cast<float>(static_cast<double>(window.mass[head * window.stride + row]) /
                            kWindowMassScale / formula.n_queries);
}

// The query heads put together, of a number for each.
template <class OfHead>
__device__ __forceinline__ float over_heads(const RowFormula& formula, int group,
                                            const OfHead& of_head) {
  float worth = 0.0F;
  for (int head = 0; head < group; ++head) {
    const float each = of_head(head);
    worth = formula.takes_greatest_head ? (worth < each ? each : worth)
                                        : worth + each / static_cast<float>(group);
  }
  return worth;
}

// The rows around one put together, of a number for each; beyond the ends there are zeros.
template <class OfRow>
__device__ __forceinline__ float over_neighbours(const RowFormula& formula, int row, int n_rows,
                                                 const OfRow& of_row) {
  const int first = max(0, row - (formula.pool_width - 1) / 2);
  const int last = min(n_rows, row + formula.pool_width / 2 + 1);
  float greatest = 0.0F;
  double sum = 0.0;
  for (int i = first; i < last; ++i) {
    const float each = of_row(i);
    greatest = greatest < each ? each : greatest;
    sum += static_cast<double>(each);
  }
  return formula.pools_greatest ? greatest
                                : static_cast<float>(sum / static_cast<double>(formula.pool_width));
}

__device__ __forceinline__ float of_last_queries(const RowFormula& formula, const Window& window,
                                                 int row) {
  const auto given = [&](int head, int i) { return attention(formula, window, head, i); };
  if (formula.pools_heads) {
    return over_neighbours(formula, row, window.n_rows, [&](int i) {
      return over_heads(formula, window.group, [&](int head) { return given(head, i); });
    });
  }
  return over_heads(formula, window.group, [&](int head) {
    return over_neighbours(formula, row, window.n_rows, [&](int i) { return given(head, i); });
  });
}

// Slots of rows at positions below `pos`.
__device__ __forceinline__ int rows_before(const HeadArrays& head, int pos) {
  int low = 0;
  for (int high = head.n; low < high;) {
    const int middle = (low + high) / 2;
    if (head.positions[middle] < pos) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Mapping: blockIdx.y = head, a thread a row. Limited by its launch, or by group · kernel reads of neighbouring numbers.
__global__ void __launch_bounds__(kThreads)
    worth_kernel(RowFormula formula, int group, const HeadArrays* heads, const WorthInputs* inputs,
                 size_t window_stride, float* scores, size_t stride) {
  const HeadArrays head = heads[blockIdx.y];
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= head.n) {
    return;
  }
  const WorthInputs input = inputs[blockIdx.y];
  float score = 0.0F;
  switch (formula.of) {
    case RowFormula::Of::kStaticScore:
      score = formula.factor * head.scores[row];
      break;
    case RowFormula::Of::kColumnMass: {
      const double unit = 1 / (kMassScale * group);
      score = static_cast<float>(static_cast<double>(head.mass[row]) * unit);
      if (formula.is_per_query) {
        score /= static_cast<float>(input.n_positions - head.positions[row]);
      }
      break;
    }
    case RowFormula::Of::kLastQuery: {
      long long total = 0;
      for (int i = 0; i < group; ++i) {
        total += input.window[i * window_stride + row];
      }
      score = static_cast<float>(static_cast<double>(total) / kWindowMassScale /
                                 static_cast<double>(group));
      break;
    }
    case RowFormula::Of::kLastQueries: {
      const int n_rows = formula.keeps_own_rows ? rows_before(head, input.window_pos) : head.n;
      score = row < n_rows
                  ? of_last_queries(formula, {input.window, window_stride, group, n_rows}, row)
                  : INFINITY;
      break;
    }
  }
  scores[blockIdx.y * stride + row] = score;
}

// Mapping: block = head, a thread every so many of the rows kept, each followed by a gap or not.
__global__ void __launch_bounds__(kThreads)
    lost_kernel(const HeadArrays* heads, const Quota* quotas, Slots kept, int32_t* lost,
                size_t lost_stride) {
  const int n = heads[blockIdx.x].n;
  const int n_keep = quotas[blockIdx.x].n_keep;
  if (n_keep >= n) {
    return;
  }
  const int32_t* const slots = kept.slots + blockIdx.x * kept.stride;
  int32_t* const of_head = lost + blockIdx.x * lost_stride;
  // Before kept row i there are slots[i] - i that are lost.
  for (int i = static_cast<int>(threadIdx.x); i <= n_keep; i += kThreads) {
    const int first = i == 0 ? 0 : slots[i - 1] + 1;
    const int end = i == n_keep ? n : slots[i];
    for (int slot = first; slot < end; ++slot) {
      of_head[slot - i] = slot;
    }
  }
}

}  // namespace

void score_rows(const RowFormula& formula, int group, const Heads& heads, const WorthInputs* inputs,
                size_t window_stride, float* scores, size_t stride, const Stream& stream) {
  if (heads.n_heads == 0 || heads.most_rows == 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>((heads.most_rows + kThreads - 1) / kThreads),
                  static_cast<unsigned>(heads.n_heads));
  worth_kernel<<<grid, kThreads, 0, stream.get()>>>(formula, group, heads.heads, inputs,
                                                    window_stride, scores, stride);
  check(cudaGetLastError(), "scoring rows");
}

void find_lost(const Heads& heads, const Quota* quotas, const Slots& kept, int32_t* lost,
               size_t lost_stride, const Stream& stream) {
  if (heads.n_heads == 0) {
    return;
  }
  lost_kernel<<<static_cast<unsigned>(heads.n_heads), kThreads, 0, stream.get()>>>(
      heads.heads, quotas, kept, lost, lost_stride);
  check(cudaGetLastError(), "finding lost rows");
}

}  // namespace winnow::kernels::cuda
