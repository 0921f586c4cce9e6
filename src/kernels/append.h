// Writing new rows into the cache, with the static score while the row is at hand.
#pragma once

#include <cstddef>
#include <span>

#include "cache/cache.h"

namespace winnow::kernels {

struct NewRows {
  const float* keys;    // row i at keys + i * stride, head_dim elements
  const float* values;  // the same
  size_t stride;
  int n_rows;
  int first_pos;           // absolute position of row 0; the others follow
  int first_rotation = 0;  // what its key is rotated to, where the cache stores that
  // [head_dim] what keys are projected on for their static score. Empty: that is their squared norm.
  std::span<const float> direction = {};
};

// Converts the rows to the cache's types. A finite element beyond the type's range is stored as its largest finite
// value and counted. Where the target has scores, each row's is static_scores() of the key as stored, or +infinity where a
// replay will say.
cache::Cache::AppendCounts append_rows(const NewRows& rows, const cache::CacheShape& shape,
                                       const cache::Cache::Target& target) noexcept;

// Values [slots.size(), head_dim] of rows that stay, in the place of those that they have at `slots` (ascending, unique):
// converted and counted as new rows are. `rows`: where the head's values are, if that is a copy.
void rewrite_values(cache::Cache& cache, int layer, int kv_head, std::span<const int> slots,
                    std::span<const float> values, std::byte* rows = nullptr);

// Has the keys of the head at `slots` (ascending, unique) be 0 in these channels.
void silence_channels(cache::Cache& cache, int layer, int kv_head, std::span<const int> slots,
                      std::span<const int> channels);

// The static scores of cached rows from their keys, the same bits as at append: the canonical dot product
// (kernels/cpu/rows-inl.h) of each key with the direction [head_dim] or, where that is empty, with itself. scores [rows.n].
void static_scores(const cache::HeadRows& rows, std::span<const float> direction,
                   std::span<float> scores);

}  // namespace winnow::kernels
