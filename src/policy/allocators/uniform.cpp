#include "policy/allocators/uniform.h"

#include <algorithm>

namespace winnow::policy {

void allocate_uniform(int budget_rows, std::span<int> n_keep) {
  std::fill(n_keep.begin(), n_keep.end(), budget_rows);
}

}  // namespace winnow::policy
