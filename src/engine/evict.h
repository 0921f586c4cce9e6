// Evicts: score, allocate, select, compact, between graphs.
#pragma once

#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kernels/parallel.h"

namespace winnow::engine {

// What policies see of layers [first_layer, …) of a cache with rows [n_layers, n_kv_heads], to views: the layers
// without a window. Policies do not decide about the others: their rows go when no query sees them any more.
void view_layers(const cache::CacheShape& shape, int first_layer,
                 std::span<const cache::HeadRows> rows, std::vector<policy::LayerView>& views);

class Evictor {
 public:
  explicit Evictor(int n_threads) : parallel_(n_threads) {}

  // Cuts the heads of layers [first_layer, first_layer + n_layers) back to the policy's budget; false where no head was
  // over it. Adds the time to the sequence's statistics.
  bool evict(Sequence& sequence, int first_layer, int n_layers);

  kernels::ParallelFor& parallel() { return parallel_; }

 private:
  kernels::ParallelFor parallel_;
  std::vector<cache::HeadRows> rows_;  // [n_layers, n_kv_heads]
  std::vector<policy::LayerView> views_;
  policy::Choice choice_;
};

// Gives back what the windows of these layers have left behind at `last_pos`, the last position they have read.
void drop_unseen_rows(Sequence& sequence, int first_layer, int n_layers, int last_pos);

}  // namespace winnow::engine
