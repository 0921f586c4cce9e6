// The highest scores of one head, found without sorting.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/scratch.h"

namespace winnow::kernels {

// Elements that select_highest() may write behind the last slot.
inline constexpr size_t kSelectSlack = 16;

// Writes the slots of the n_keep highest of scores [n], ascending and counted from first_slot, to kept
// [n_keep + kSelectSlack]; 1 <= n_keep <= n. Order: score descending, slot ascending; -0 equals +0, infinities in their
// place, NaN below all. The order is strict, so every instruction set finds the same slots. Returns how many scores are
// NaN.
int select_highest(std::span<const float> scores, int n_keep, int first_slot, std::span<int> kept,
                   Scratch& scratch);

// The scores that a first guess is made from, where there are more than a few hundred: slot i of n_sampled, a power of
// two. An input made against them is found by counting digits instead.
inline size_t n_sampled(size_t n_scores) {
  return std::clamp<size_t>(std::bit_floor(n_scores / 64), 128, 1024);
}
inline size_t sampled_slot(size_t i, size_t n_sampled, size_t n_scores) {
  constexpr uint32_t kGoldenRatio = 2654435769U;  // spreads evenly within the steps, at no period
  const uint64_t place = (i << 16) | ((static_cast<uint32_t>(i) * kGoldenRatio) >> 16);
  return static_cast<size_t>(place * n_scores / n_sampled >> 16);
}

}  // namespace winnow::kernels
