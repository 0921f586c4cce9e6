// From scores of the rows that attention sees to those of all rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

#include "base/scratch.h"
#include "policy/scorer.h"

namespace winnow::policy {

// The slots of a head that attention sees, ascending: those of positions below LayerView::n_sink, and the others.
struct VisibleSlots {
  std::span<const int> sinks;
  std::span<const int> others;
};

// In memory of `scratch`.
inline VisibleSlots without_sinks(const LayerView& layer, int kv_head, Scratch& scratch) {
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  const std::span<const int> visible =
      cache::visible_slots(rows, scratch.take<int>(static_cast<size_t>(rows.n)));
  size_t n_sinks = 0;
  while (n_sinks < visible.size() && rows.positions[visible[n_sinks]] < layer.n_sink) {
    ++n_sinks;
  }
  return {.sinks = visible.first(n_sinks), .others = visible.subspan(n_sinks)};
}

// scores [n]: factor · worth[i] at slots[i], and NaN, which is worth least, for all others.
inline void score_visible(std::span<const int> slots, std::span<const float> worth, float factor,
                          std::span<float> scores) {
  std::fill(scores.begin(), scores.end(), std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < slots.size(); ++i) {
    scores[static_cast<size_t>(slots[i])] = factor * worth[i];
  }
}

// The sinks come before all others.
inline void score_sinks(const VisibleSlots& visible, std::span<float> scores) {
  for (const int slot : visible.sinks) {
    scores[static_cast<size_t>(slot)] = std::numeric_limits<float>::infinity();
  }
}

}  // namespace winnow::policy
