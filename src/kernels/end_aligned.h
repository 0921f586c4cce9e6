// Attention as programs compute it that evict before a prompt attends: a causal mask that knows the numbers of rows and
// queries, not their positions, and aligns both at their ends. Right only while no row is missing; it is here so that
// published results can be reproduced (docs/decisions/faults.md).
//
// Of m rows and n queries, query j = 0 … n-1 sees the first m - n + j + 1 rows. One that sees none attends to itself: its
// output is its own value.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml.h"
#include "kernels/attend.h"
#include "kernels/cache_ops.h"

namespace winnow::kernels {

class EndAlignedAttention {
 public:
  EndAlignedAttention(const AttendShape& shape, int n_threads)
      : shape_(shape), n_threads_(n_threads) {}

  // The next call of attend() is about these slices, of prompts, and the rows that `layer` has now. Throws
  // resource_exhausted.
  void set_rows(std::span<const Slice> slices, int layer);

  size_t scratch_bytes() const;
  // What that will be, at most, for one sequence whose heads hold up to n_rows.
  size_t measure_scratch(int n_rows) const;

  // q [head_dim, n_heads, n_tokens], v [head_dim, n_kv_heads, n_tokens]: of the slices' tokens, and padding. out [head_dim *
  // n_heads, n_tokens].
  void attend(const ggml_tensor* q, const ggml_tensor* v, ggml_tensor* out, int thread,
              int n_threads) noexcept;

 private:
  // A KV head of a slice: its rows at places without gaps, 0 … n_visible-1, and where its queries stand among them.
  struct Head {
    int first_token;  // in the batch
    int n_tokens;
    int kv_head;
    int first_place;  // the first query's; below 0 where it sees no row
    cache::HeadRows rows;
  };
  // A tile of a head's lanes (PromptQueries).
  struct Item {
    int head;
    int first_lane;
    int n_lanes;
  };

  void add_head(const Slice& slice, int kv_head, const cache::HeadRows& rows,
                std::span<int32_t> places);
  void take_own_values(const Head& head, const ggml_tensor* v, ggml_tensor* out) const noexcept;

  AttendShape shape_;
  int n_threads_;
  int n_tokens_ = 0;
  std::vector<Head> heads_;
  std::vector<Item> items_;
  std::vector<int32_t> places_;  // of all heads' slots
  size_t thread_floats_ = 0;
  std::vector<float> memory_;  // [n_threads, thread_floats] and what aligns it
};

// Attends to the rows that set_rows() was told; returns [head_dim * n_heads, n_tokens].
ggml_tensor* build_end_aligned(ggml_context* ctx, EndAlignedAttention* attention, ggml_tensor* q,
                               ggml_tensor* v);

}  // namespace winnow::kernels
