#include "policy/pooling.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "policy/order.h"

namespace winnow::policy {
namespace {

int n_protected(const HeadDemand& head) {
  return head.keep_anyway.n_first + head.keep_anyway.n_last;
}

// Scores of the rows that are not protected.
std::span<const float> others(const HeadDemand& head) {
  return head.scores.subspan(static_cast<size_t>(head.keep_anyway.n_first),
                             static_cast<size_t>(head.n - n_protected(head)));
}

// The others of a head but its n_best best, to the end of `pool`.
void add_to_pool(std::span<const float> scores, int n_best, std::vector<uint32_t>& pool) {
  const auto begin = static_cast<std::ptrdiff_t>(pool.size());
  for (const float score : scores) {
    pool.push_back(ordered(score));
  }
  const auto first = pool.begin() + begin;
  if (n_best > 0) {
    std::nth_element(first, first + (n_best - 1), pool.end(), std::greater<>());
    pool.erase(first, first + n_best);
  }
}

}  // namespace

void pool_rows(int64_t n_rows, float budget_floor, std::span<const HeadDemand> heads,
               std::vector<uint32_t>& pool, std::span<int> n_keep) {
  const int64_t equal_part = n_rows / std::ssize(heads);
  // In floats, where 0.7 x 10 is 7.
  const float floor_rows = std::floor(budget_floor * static_cast<float>(equal_part));
  const auto n_floor = static_cast<int>(std::min(equal_part, static_cast<int64_t>(floor_rows)));
  pool.clear();
  int64_t n_free = n_rows;
  for (size_t i = 0; i < heads.size(); ++i) {
    const HeadDemand& head = heads[i];
    n_keep[i] = std::min(head.n, std::max(head.n_least, n_floor));
    n_free -= n_keep[i];
    add_to_pool(others(head), n_keep[i] - n_protected(head), pool);
  }
  WINNOW_CHECK(n_free >= 0 && n_free <= std::ssize(pool));
  if (n_free == 0) {
    return;
  }
  const auto last = pool.begin() + static_cast<std::ptrdiff_t>(n_free - 1);
  std::nth_element(pool.begin(), last, pool.end(), std::greater<>());
  const uint32_t lowest_kept = *last;

  // The rows above the lowest one kept; its equals then go to the heads in order until all rows are given.
  for (size_t i = 0; i < heads.size(); ++i) {
    const std::span<const float> scores = others(heads[i]);
    const auto n_above = std::count_if(scores.begin(), scores.end(), [lowest_kept](float score) {
      return ordered(score) > lowest_kept;
    });
    const int n = std::max(n_keep[i], n_protected(heads[i]) + static_cast<int>(n_above));
    n_free -= n - n_keep[i];
    n_keep[i] = n;
  }
  for (size_t i = 0; i < heads.size() && n_free > 0; ++i) {
    const std::span<const float> scores = others(heads[i]);
    const auto n_at_least = std::count_if(scores.begin(), scores.end(), [lowest_kept](float score) {
      return ordered(score) >= lowest_kept;
    });
    const int64_t most = n_protected(heads[i]) + static_cast<int64_t>(n_at_least);
    const int64_t n_equal = std::clamp<int64_t>(most - n_keep[i], 0, n_free);
    n_keep[i] += static_cast<int>(n_equal);
    n_free -= n_equal;
  }
  WINNOW_CHECK(n_free == 0);
}

}  // namespace winnow::policy
