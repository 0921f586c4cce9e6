// Attention as the papers write it, in double precision and plain loops.
#pragma once

#include <vector>

#include "cache/rows.h"

namespace winnow::oracle {

// Element i of a row of `type`.
double row_element(const std::byte* rows, cache::RowType type, size_t index);

// softmax(scale * q · K) · V of one query [head_dim] at `pos` over the visible rows: those at positions up to
// `pos` that are not hidden, and with a window only those less than `swa_window` behind. Zeros when there is none.
std::vector<double> attention(const cache::HeadRows& rows, const float* q, int pos, double scale,
                              int swa_window = 0);

// The softmax weights of the same rows [rows.n]; 0 for those that are not seen.
std::vector<double> softmax_weights(const cache::HeadRows& rows, const float* q, int pos,
                                    double scale, int swa_window = 0);

}  // namespace winnow::oracle
