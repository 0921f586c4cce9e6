// What the plan of decoding tells the kernel that attends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attend_decode.h"

namespace winnow::kernels::cuda {

inline constexpr int kMostQueries = 8;  // of a head that share one pass over its rows

// The rows of one part of one head for one pass: all that a block must read before it asks for rows.
struct alignas(64) DecodePart {
  const std::byte* keys;  // of the first row or, where there are slots, of slot 0
  const std::byte* values;
  const int32_t* slots;  // of the rows, or null where they lie one behind the other
  const float* q;        // [n_queries, head_dim]
  float* out;
  int n_rows;  // 0: nothing to do
  int16_t n_queries;
  int16_t n_filled;  // parts of this head that have rows
  int16_t rank;      // of this part among them
  int16_t has_nonfinite_values;
  int32_t first_sum;  // where its first query's sum of weights goes
};
static_assert(sizeof(DecodePart) == 64);

// The plan in device memory. A column is one pass of one head; part p of column c is parts[p * n_columns + c].
struct DecodeParts {
  DecodePart* parts;
  int* n_done;      // [n_columns] parts finished, 0 between calls
  float* partials;  // [columns of a call, most_parts] of partial_floats each
  WeightSum* sums;  // [n_heads, group]
  int n_columns;
  int most_parts;
};

// What a part leaves: maximum [n_queries], sum of weights [n_queries], output [n_queries, head_dim]; a multiple of 16 bytes.
inline constexpr size_t partial_floats(int n_queries, int head_dim) {
  return static_cast<size_t>(n_queries) * static_cast<size_t>(head_dim) +
         (2 * static_cast<size_t>(n_queries) + 3) / 4 * 4;
}

// The queries that a pass is compiled for: the smallest power of two that holds them.
inline constexpr int padded_queries(int n_queries) {
  return n_queries > 4 ? 8 : n_queries > 2 ? 4 : n_queries;
}

}  // namespace winnow::kernels::cuda
