#include "policy/select.h"

#include <numeric>

#include "base/error.h"
#include "kernels/select.h"

namespace winnow::policy {

std::vector<int> select(std::span<const float> scores, int n_keep, const Protected& keep_anyway) {
  Scratch scratch;
  std::vector<int> kept;
  select(scores, n_keep, keep_anyway, scratch, kept);
  return kept;
}

int select(std::span<const float> scores, int n_keep, const Protected& keep_anyway,
           Scratch& scratch, std::vector<int>& kept) {
  const int n = static_cast<int>(scores.size());
  const auto [n_first, n_last] = keep_anyway;
  WINNOW_CHECK(n_keep >= 0 && n_first >= 0 && n_last >= 0);
  if (n_keep >= n) {
    kept.resize(scores.size());
    std::iota(kept.begin(), kept.end(), 0);
    return 0;
  }
  WINNOW_CHECK(n_first <= n_keep - n_last);
  const int n_chosen = n_keep - n_first - n_last;
  kept.resize(static_cast<size_t>(n_keep) + kernels::kSelectSlack);
  std::iota(kept.begin(), kept.begin() + n_first, 0);
  int n_nan = 0;
  if (n_chosen > 0) {
    n_nan = kernels::select_highest(
        scores.subspan(static_cast<size_t>(n_first), static_cast<size_t>(n - n_first - n_last)),
        n_chosen, n_first, std::span(kept).subspan(static_cast<size_t>(n_first)), scratch);
  }
  kept.resize(static_cast<size_t>(n_keep));
  std::iota(kept.end() - n_last, kept.end(), n - n_last);
  return n_nan;
}

}  // namespace winnow::policy
