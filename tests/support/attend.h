// Attention of the kernels, called on a plain cache.
#pragma once

#include <span>
#include <vector>

#include "cache/cache.h"
#include "kernels/cache_ops.h"

namespace winnow::test {

// The prompt kernel: queries [n_tokens, n_heads, head_dim] of tokens at first_pos, …; the same layout comes back.
std::vector<float> attend_prompt_all(const cache::Cache& cache, int layer, int n_heads,
                                     int first_pos, std::span<const float> queries, float scale,
                                     int swa_window = 0);

// The decode kernel: one token's queries [n_heads, head_dim] at `pos`.
std::vector<float> attend_decode_all(const cache::Cache& cache, int layer, int n_heads, int pos,
                                     std::span<const float> queries, float scale,
                                     int swa_window = 0);

// The attend node's work on one slice without a graph: every thread's share in turn. Queries and what comes back
// [n_tokens, n_heads, head_dim].
std::vector<float> attend_as_node(const kernels::LayerOps& ops, const kernels::Slice& slice,
                                  std::span<const float> queries, int n_threads);

}  // namespace winnow::test
