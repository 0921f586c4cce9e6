// Writing new rows to where cached ones lie on a GPU, with the static score while the row is at hand.
#pragma once

#include <cstdint>

#include "kernels/cuda/device_rows.h"

namespace winnow::kernels::cuda {

// cache::Cache::AppendCounts of one head, added to by kernels.
struct DeviceCounts {
  unsigned long long saturated;
  unsigned long long nonfinite_keys;
  unsigned long long nonfinite_values;
};

// A KV head with the new rows of one sequence.
struct AppendHead {
  HeadArrays rows;       // n: before the new ones, for which there is room
  DeviceCounts* counts;  // of the head
  int kv_head;
  int first_token;  // in the batch
  int n_tokens;
  int first_pos;
  // Where the last n_ring queries of the layer [n_ring, n_heads, head_dim] are remembered, that of position p at p mod n_ring; or null.
  float* ring;
  int n_ring;
};

// Writes the positions of the new rows of heads [n_heads].
void append_positions(const AppendHead* heads, int n_heads, int most_tokens, const Stream& stream);

// Converts keys and values [n_tokens of the batch, n_kv_heads, head_dim] to the cache's types and puts them behind the rows of
// heads [n_heads], with squared key norms: the same bits as kernels::append_rows(). All pointers are to device
// memory; `most_tokens` of any head decides the launch.
void append_rows(const RowFormat& format, int n_kv_heads, const AppendHead* heads, int n_heads,
                 int most_tokens, const float* keys, const float* values, const Stream& stream);

// Copies the last queries [n_tokens of the batch, n_kv_heads, group_floats] of heads [n_heads] to their rings.
void remember_queries(size_t group_floats, int n_kv_heads, const AppendHead* heads, int n_heads,
                      int most_tokens, const float* queries, const Stream& stream);

}  // namespace winnow::kernels::cuda
