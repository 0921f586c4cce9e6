// Small rows that anyone can make anew in any language, for which the scores of published implementations are known:
// two KV heads of 24 rows with 8 channels, from a linear congruential generator.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/tiny_layer.h"

namespace winnow::policy::golden {

inline constexpr int kKvHeads = 2;
inline constexpr int kRows = 24;
inline constexpr int kHeadDim = 8;

// x <- 1664525 x + 1013904223 (mod 2^32), from the seed; each step gives x / 2^32 * 2 - 1, in double, as a float.
inline std::vector<float> fill(uint32_t seed, size_t n) {
  std::vector<float> numbers(n);
  uint32_t x = seed;
  for (float& number : numbers) {
    x = 1664525 * x + 1013904223;
    number = static_cast<float>(x / 4294967296.0 * 2 - 1);
  }
  return numbers;
}

// Both [n_kv_heads, n_rows, head_dim].
inline std::vector<float> keys() {
  return fill(1, size_t{kKvHeads} * kRows * kHeadDim);
}
inline std::vector<float> values() {
  return fill(2, size_t{kKvHeads} * kRows * kHeadDim);
}

inline std::vector<TinyHead> heads() {
  constexpr auto kElements = static_cast<std::ptrdiff_t>(kRows) * kHeadDim;
  const std::vector<float> all_keys = keys();
  const std::vector<float> all_values = values();
  std::vector<TinyHead> heads;
  for (std::ptrdiff_t first = 0; first < std::ssize(all_keys); first += kElements) {
    heads.push_back(TinyHead::with_rows(
        kHeadDim, {all_keys.begin() + first, all_keys.begin() + first + kElements},
        {all_values.begin() + first, all_values.begin() + first + kElements}));
  }
  return heads;
}

// What a policy keeps of the fixture: slots, which are positions too.
inline KeptSlots kept_by(const std::string& spec) {
  return TinyLayer(heads()).kept_by(Policy::parse(spec));
}

}  // namespace winnow::policy::golden
