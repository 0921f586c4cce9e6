// How far a key stands out among the others of its head: what `leverage` scores by, and `compactor` in part.
#pragma once

#include <span>

#include "base/scratch.h"
#include "policy/scorer.h"

namespace winnow::policy {

struct Sketch {
  int n_directions = 48;
  int seed = 0;
};

// worth[i] = y_i (YᵀY + εI)⁻¹ y_iᵀ of the keys in `slots`: the leverage scores of a projection of the keys, turned back to
// position 0 and less their mean, on n_directions directions that are drawn for the layer. ε is 0.01, or ten times as much up
// to four times, where that is too little to solve. A key with an element that is no number is NaN and no part of the others.
void leverage_scores(const LayerView& layer, int kv_head, const Sketch& sketch,
                     std::span<const int> slots, Scratch& scratch, std::span<float> worth);

}  // namespace winnow::policy
