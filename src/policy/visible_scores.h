// From scores of the rows that attention sees to those of all rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>

namespace winnow::policy {

// scores [n]: factor · worth[i] at slots[i], and NaN, which is worth least, for all others.
inline void score_visible(std::span<const int> slots, std::span<const float> worth, float factor,
                          std::span<float> scores) {
  std::fill(scores.begin(), scores.end(), std::numeric_limits<float>::quiet_NaN());
  for (size_t i = 0; i < slots.size(); ++i) {
    scores[static_cast<size_t>(slots[i])] = factor * worth[i];
  }
}

}  // namespace winnow::policy
