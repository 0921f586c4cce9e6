// Scores of rows by the formulas of methods, and which slots are left out of those that are kept.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_rows.h"
#include "kernels/row_formula.h"

namespace winnow::kernels::cuda {

// What formulas take beside the arrays of a head.
struct WorthInputs {
  const long long*
      window;  // [group, window_stride] of the head's query heads, in units of 1 / kWindowMassScale; or null
  int window_pos;   // of the first of the last queries
  int n_positions;  // fed so far
};

// scores [n_heads, stride]: the bits of the method's Scorer::score() of the same numbers.
void score_rows(const RowFormula& formula, int group, const Heads& heads, const WorthInputs* inputs,
                size_t window_stride, float* scores, size_t stride, const Stream& stream);

// The slots that are not among those kept, ascending: lost [n_heads, lost_stride], n - n_keep of each head.
void find_lost(const Heads& heads, const Quota* quotas, const Slots& kept, int32_t* lost,
               size_t lost_stride, const Stream& stream);

}  // namespace winnow::kernels::cuda
