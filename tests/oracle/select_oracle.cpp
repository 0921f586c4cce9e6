#include "oracle/select_oracle.h"

#include <algorithm>
#include <cmath>

namespace winnow::oracle {

std::vector<int> select(const std::vector<float>& scores, int n_keep, int n_first, int n_last) {
  const int n = static_cast<int>(scores.size());
  std::vector<int> kept;
  std::vector<int> others;
  for (int slot = 0; slot < n; ++slot) {
    const bool is_protected = slot < n_first || slot >= n - n_last;
    (is_protected || n_keep >= n ? kept : others).push_back(slot);
  }
  std::stable_sort(others.begin(), others.end(), [&](int a, int b) {
    const float score_a = scores[static_cast<size_t>(a)];
    const float score_b = scores[static_cast<size_t>(b)];
    if (std::isnan(score_a) || std::isnan(score_b)) {
      return !std::isnan(score_a) && std::isnan(score_b);
    }
    return score_a > score_b;
  });
  for (size_t i = 0; std::ssize(kept) < std::min(n_keep, n); ++i) {
    kept.push_back(others[i]);
  }
  std::sort(kept.begin(), kept.end());
  return kept;
}

}  // namespace winnow::oracle
