#include "policy/select.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/error.h"

namespace winnow::policy {
namespace {

// Unsigned integers in the order of the scores: -0 = +0, NaN below -infinity.
uint32_t ordered(float score) {
  if (std::isnan(score)) {
    return 0;
  }
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0F);  // turns -0 into +0
  return (bits >> 31) != 0 ? ~bits : bits | 0x80000000U;
}

// No two slots have the same key, so every way to find the k largest finds the same ones.
uint64_t order_key(float score, uint32_t slot) {
  return (uint64_t{ordered(score)} << 32) | static_cast<uint32_t>(~slot);
}

// The k-th largest key of scores [n], 1 <= k <= n.
uint64_t kth_largest_key(std::span<const float> scores, int k) {
  std::vector<uint64_t> keys(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    keys[i] = order_key(scores[i], static_cast<uint32_t>(i));
  }
  std::nth_element(keys.begin(), keys.begin() + (k - 1), keys.end(), std::greater<>());
  return keys[static_cast<size_t>(k - 1)];
}

}  // namespace

std::vector<int> select(std::span<const float> scores, int n_keep, const Protected& keep_anyway) {
  const int n = static_cast<int>(scores.size());
  const auto [n_first, n_last] = keep_anyway;
  WINNOW_CHECK(n_keep >= 0 && n_first >= 0 && n_last >= 0);
  std::vector<int> kept(static_cast<size_t>(std::min(n_keep, n)));
  if (n_keep >= n) {
    std::iota(kept.begin(), kept.end(), 0);
    return kept;
  }
  WINNOW_CHECK(n_first <= n_keep - n_last);

  auto next = kept.begin();
  for (int slot = 0; slot < n_first; ++slot) {
    *next++ = slot;
  }
  const int n_chosen = n_keep - n_first - n_last;
  if (n_chosen > 0) {
    const std::span<const float> middle =
        scores.subspan(static_cast<size_t>(n_first), static_cast<size_t>(n - n_first - n_last));
    const uint64_t smallest_kept = kth_largest_key(middle, n_chosen);
    for (size_t i = 0; i < middle.size(); ++i) {
      if (order_key(middle[i], static_cast<uint32_t>(i)) >= smallest_kept) {
        *next++ = n_first + static_cast<int>(i);
      }
    }
  }
  for (int slot = n - n_last; slot < n; ++slot) {
    *next++ = slot;
  }
  WINNOW_CHECK(next == kept.end());
  return kept;
}

}  // namespace winnow::policy
