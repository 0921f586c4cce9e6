#include "policy/select.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "policy/order.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

// No two slots have the same key, so every way to find the k largest finds the same ones.
uint64_t order_key(float score, uint32_t slot) {
  return (uint64_t{ordered(score)} << 32) | static_cast<uint32_t>(~slot);
}

uint64_t slot_of(uint64_t key) {
  return static_cast<uint32_t>(~key);
}

// When no more than so many slots go, they are looked for instead of the ones that stay.
constexpr int kFewLosers = 8;

// The slots [0, n) but the n_lose lowest of scores [n], to `kept`, counted from `first`; returns the end of what was
// written. 1 <= n_lose <= n.
Slots::iterator drop_lowest(std::span<const float> scores, int n_lose, int first,
                            std::vector<uint64_t>& keys, Slots::iterator kept) {
  keys.assign(static_cast<size_t>(n_lose), UINT64_MAX);  // the lowest so far, descending
  for (size_t i = 0; i < scores.size(); ++i) {
    const uint64_t key = order_key(scores[i], static_cast<uint32_t>(i));
    if (key < keys.front()) {
      const auto place = std::upper_bound(keys.begin(), keys.end(), key, std::greater<>());
      std::move(keys.begin() + 1, place, keys.begin());
      *(place - 1) = key;
    }
  }
  for (uint64_t& key : keys) {
    key = slot_of(key);
  }
  std::sort(keys.begin(), keys.end());
  int slot = 0;
  for (const uint64_t loser : keys) {
    const auto n_before = static_cast<int>(loser) - slot;
    std::iota(kept, kept + n_before, first + slot);
    kept += n_before;
    slot = static_cast<int>(loser) + 1;
  }
  const auto n_after = static_cast<int>(scores.size()) - slot;
  std::iota(kept, kept + n_after, first + slot);
  return kept + n_after;
}

// The slots of the n_keep highest of scores [n], likewise. 0 <= n_keep <= n.
Slots::iterator keep_highest(std::span<const float> scores, int n_keep, int first,
                             std::vector<uint64_t>& keys, Slots::iterator kept) {
  if (n_keep == 0) {
    return kept;
  }
  keys.resize(scores.size());
  for (size_t i = 0; i < scores.size(); ++i) {
    keys[i] = order_key(scores[i], static_cast<uint32_t>(i));
  }
  std::nth_element(keys.begin(), keys.begin() + (n_keep - 1), keys.end(), std::greater<>());
  const uint64_t lowest_kept = keys[static_cast<size_t>(n_keep - 1)];
  for (size_t i = 0; i < scores.size(); ++i) {
    if (order_key(scores[i], static_cast<uint32_t>(i)) >= lowest_kept) {
      *kept++ = first + static_cast<int>(i);
    }
  }
  return kept;
}

}  // namespace

std::vector<int> select(std::span<const float> scores, int n_keep, const Protected& keep_anyway) {
  std::vector<uint64_t> keys;
  std::vector<int> kept;
  select(scores, n_keep, keep_anyway, keys, kept);
  return kept;
}

void select(std::span<const float> scores, int n_keep, const Protected& keep_anyway,
            std::vector<uint64_t>& keys, std::vector<int>& kept) {
  const int n = static_cast<int>(scores.size());
  const auto [n_first, n_last] = keep_anyway;
  WINNOW_CHECK(n_keep >= 0 && n_first >= 0 && n_last >= 0);
  kept.resize(static_cast<size_t>(std::min(n_keep, n)));
  if (n_keep >= n) {
    std::iota(kept.begin(), kept.end(), 0);
    return;
  }
  WINNOW_CHECK(n_first <= n_keep - n_last);

  std::iota(kept.begin(), kept.begin() + n_first, 0);
  auto next = kept.begin() + n_first;
  const std::span<const float> middle =
      scores.subspan(static_cast<size_t>(n_first), static_cast<size_t>(n - n_first - n_last));
  next = n - n_keep <= kFewLosers
             ? drop_lowest(middle, n - n_keep, n_first, keys, next)
             : keep_highest(middle, n_keep - n_first - n_last, n_first, keys, next);
  std::iota(next, next + n_last, n - n_last);
  WINNOW_CHECK(next + n_last == kept.end());
}

}  // namespace winnow::policy
