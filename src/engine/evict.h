// Evicts: score, allocate, select, compact, between graphs.
#pragma once

#include "engine/sequence.h"
#include "kernels/parallel.h"

namespace winnow::engine {

// Cuts the heads of layers [first_layer, first_layer + n_layers) back to the policy's budget; false where no head was
// over it. Adds the time to the sequence's statistics.
bool evict(Sequence& sequence, int first_layer, int n_layers, kernels::ParallelFor& parallel);

}  // namespace winnow::engine
