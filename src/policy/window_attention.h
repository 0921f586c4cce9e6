// What queries attend to, computed anew from the queries, such as the engine remembers, and the cached keys.
#pragma once

#include <cstdint>
#include <span>

#include "base/scratch.h"
#include "policy/scorer.h"

namespace winnow::policy {

// How many of the last `n_queries` queries of a layer there are.
int n_remembered(const LayerView& layer, int n_queries);

// Queries of consecutive positions, of query heads that share a KV head.
struct Queries {
  const float* q;       // [n_tokens, n_heads, head_dim]
  size_t token_stride;  // floats from one token to the next
  int n_heads;
  int n_tokens;
  int first_pos;
};

// Adds the softmax weights that the rows get of the queries to mass [rows.n], in units of 1 / mass_scale. A query sees the
// visible rows at positions up to its own.
void add_attention_mass(const cache::HeadRows& rows, const Queries& queries, float scale,
                        double mass_scale, Scratch& scratch, std::span<int64_t> mass);

// Where positions are contiguous, rows have gone since the query at `pos` was asked, and so has its place: it is where its
// own row of that KV head stands, or would. q [n_heads, head_dim] is turned there; elsewhere nothing is done.
void turn_to_rows(const LayerView& layer, int kv_head, int pos, Scratch& scratch,
                  std::span<float> q);

// Query heads of the group of a KV head.
struct GroupHeads {
  int first;
  int n;
};

// mass [rows.n] = the softmax weights of the rows of a KV head, summed over n_queries remembered queries from first_pos on, of
// some of its query heads, in units of 1 / kernels::kWindowMassScale. A query sees the visible rows at positions up to its
// own. Rows that are not visible get 0.
void query_mass(const LayerView& layer, int kv_head, GroupHeads heads, int first_pos, int n_queries,
                Scratch& scratch, std::span<int64_t> mass);

// The same of the last n_queries queries (at most n_remembered()).
void window_mass(const LayerView& layer, int kv_head, GroupHeads heads, int n_queries,
                 Scratch& scratch, std::span<int64_t> mass);

// logits [slots] = what a remembered query of one query head (of all) says of the rows at `slots`, before the softmax.
void query_logits(const LayerView& layer, int kv_head, int head, int pos,
                  std::span<const int> slots, Scratch& scratch, std::span<float> logits);

// The first of `visible`, ascending slots, whose rows a query at `pos` sees.
std::span<const int> seen_slots(const cache::HeadRows& rows, std::span<const int> visible, int pos);

// query_mass() of the last query alone and of all query heads of the group, in passes over the keys: what decoding can ask for at
// every token.
void last_query_mass(const LayerView& layer, int kv_head, Scratch& scratch,
                     std::span<int64_t> mass);

}  // namespace winnow::policy
