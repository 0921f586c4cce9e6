#include "policy/protect.h"

#include <algorithm>

namespace winnow::policy {

Protected protect(const cache::HeadRows& rows, const Protection& protection) {
  const int32_t* const first_other =
      std::lower_bound(rows.positions, rows.positions + rows.n, protection.n_sink);
  int n_first = static_cast<int>(first_other - rows.positions);
  if (rows.hidden != nullptr) {
    n_first = static_cast<int>(std::count(rows.hidden, rows.hidden + n_first, cache::kVisible));
  }
  return {n_first, std::min(protection.n_recent, rows.n_visible() - n_first)};
}

}  // namespace winnow::policy
