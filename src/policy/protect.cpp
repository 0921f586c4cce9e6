#include "policy/protect.h"

#include <algorithm>

namespace winnow::policy {

Protected protect(std::span<const int32_t> positions, const Protection& protection) {
  const auto first_other = std::lower_bound(positions.begin(), positions.end(), protection.n_sink);
  const int n_first = static_cast<int>(first_other - positions.begin());
  const int n_others = static_cast<int>(positions.end() - first_other);
  return {n_first, std::min(protection.n_recent, n_others)};
}

}  // namespace winnow::policy
