// What the rows of a head are worth to their neighbours: what `noncausal` scores by, and `compactor` in part.
#pragma once

#include <span>

#include "base/scratch.h"
#include "policy/scorer.h"

namespace winnow::policy {

// worth[i] = mean of w(i-1), w(i), w(i+1), of rows that are not there 0; w(j) = the mean over the query heads of the group of
// the weights that row slots[j] gets in its chunk (kernels/chunk_attention.h), times the norm of its value. Of a chunk that is
// not full yet the queries so far ask. Slots ascend.
void chunk_worth(const LayerView& layer, int kv_head, const kernels::ChunkAttention& how,
                 std::span<const int> slots, Scratch& scratch, std::span<float> worth);

}  // namespace winnow::policy
