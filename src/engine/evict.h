// Evicts: score, allocate, select, compact, between graphs.
#pragma once

#include <span>
#include <vector>

#include "engine/sequence.h"
#include "kernels/parallel.h"

namespace winnow::engine {

// Cuts the heads of layers [first_layer, first_layer + n_layers) back to the policy's budget; false where no head was
// over it. Adds the time to the sequence's statistics.
// Layers with a sliding window are no business of the policy's: their rows go when no query sees them any more.
bool evict(Sequence& sequence, int first_layer, int n_layers, kernels::ParallelFor& parallel);

// What a policy keeps of some layers.
struct Choice {
  std::vector<int> layers;  // those that policies cut
  policy::KeptSlots kept;   // [layers.size() * n_kv_heads]; empty where no head is over its share
};
// Of layers [first_layer, …) of caches of this shape, with rows [n_layers, n_kv_heads].
Choice choose_rows(const policy::Policy& policy, const cache::CacheShape& shape, int first_layer,
                   std::span<const cache::HeadRows> rows, kernels::ParallelFor& parallel);

// Gives back what the windows of these layers have left behind at `last_pos`, the last position they have read.
void drop_unseen_rows(Sequence& sequence, int first_layer, int n_layers, int last_pos);

}  // namespace winnow::engine
