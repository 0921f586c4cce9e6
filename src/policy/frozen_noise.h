// Random numbers that belong to a row for as long as it is there: a hash of what it is, so that they need no memory and do not
// depend on when they are asked for.
#pragma once

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/random.h"

namespace winnow::policy {

// What a draw is for: those for different purposes have nothing to do with each other. 0 and 1 are the draws of the method
// `random`, whose stream `leverage` shares, and of the merger `cam`.
enum class FrozenDraw { kNoise = 2, kGate = 3 };

// Uniform in (0, 1).
inline double frozen_draw(FrozenDraw purpose, int seed, std::initializer_list<int> of) {
  uint64_t hash =
      splitmix64((uint64_t{static_cast<uint32_t>(purpose)} << 32) + static_cast<uint32_t>(seed));
  for (const int value : of) {
    hash = hash_with(hash, value);
  }
  return (static_cast<double>(hash >> 11) + 0.5) * 0x1p-53;
}

// From a Gumbel distribution: that of a position in all layers and heads.
inline double frozen_gumbel(int seed, int pos) {
  return -std::log(-std::log(frozen_draw(FrozenDraw::kNoise, seed, {pos})));
}

// How much of it is added to scores.
struct FrozenNoise {
  float tau_init = 0;  // what it is multiplied with
  float tau_end = 0;   // and after `anneal` positions; in between linearly
  int anneal = 0;      // 0: tau_init for ever
  int seed = 0;

  bool is_there() const { return tau_init > 0 || (anneal > 0 && tau_end > 0); }
  double tau(int newest_pos) const {
    const double share = anneal > 0 ? std::min(1.0, static_cast<double>(newest_pos) / anneal) : 0.0;
    const auto init = static_cast<double>(tau_init);
    return init + (static_cast<double>(tau_end) - init) * share;
  }
};

}  // namespace winnow::policy
