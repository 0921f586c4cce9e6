// How much a value weighs in what a layer adds to the residual stream: L1 norms of its products with a matrix.
#pragma once

#include <cstddef>
#include <span>

#include "base/scratch.h"
#include "kernels/row_kernels.h"

namespace winnow::kernels {

// Columns that rows are laid out in come in multiples of this, and outputs in multiples of the other.
inline constexpr size_t kNormRows = 16;
inline constexpr size_t kNormOutputs = 4;

// Turns rows into columns: columns [head_dim, n_columns], column i being row slots[i] and those behind them zero.
// n_columns = a multiple of kNormRows, at least the number of slots.
void rows_to_columns(const RowVectors& rows, std::span<const int> slots, std::span<float> columns,
                     size_t n_columns, Scratch& scratch);

// sums[j] += Σ_i | Σ_c matrix[i * stride + c] · columns[c, j] | over n_outputs rows of a matrix, a multiple of kNormOutputs, and
// its first head_dim columns. The inner sum is a chain of fused multiply-adds in order of c, the outer one in order of i;
// both in floats, so a part of a matrix should not have many outputs. sums [n_columns].
// A column's result depends on that column alone, and has the same bits on every instruction set.
void add_output_norms(const float* matrix, size_t n_outputs, size_t stride, int head_dim,
                      std::span<const float> columns, std::span<double> sums);

}  // namespace winnow::kernels
