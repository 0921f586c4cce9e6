// The order of scores, the same wherever rows are compared.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace winnow::policy {

// Unsigned integers in the order of the scores: -0 = +0, infinities in their place, NaN below all.
inline uint32_t ordered(float score) {
  if (std::isnan(score)) {
    return 0;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0F);  // turns -0 into +0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

}  // namespace winnow::policy
