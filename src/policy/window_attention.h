// What the last queries attend to, computed anew from the queries that the engine remembers and the cached keys.
#pragma once

#include <cstdint>
#include <span>

#include "base/scratch.h"
#include "policy/scorer.h"

namespace winnow::policy {

// How many of the last `n_queries` queries of a layer there are.
int n_remembered(const LayerView& layer, int n_queries);

// Query heads of the group of a KV head.
struct GroupHeads {
  int first;
  int n;
};

// mass [rows.n] = the softmax weights of the rows of a KV head, summed over the last n_queries queries (at most
// n_remembered()) of some of its query heads, in units of 1 / kernels::kWindowMassScale. A query sees the visible rows at
// positions up to its own. Rows that are not visible get 0.
void window_mass(const LayerView& layer, int kv_head, GroupHeads heads, int n_queries,
                 Scratch& scratch, std::span<int64_t> mass);

}  // namespace winnow::policy
