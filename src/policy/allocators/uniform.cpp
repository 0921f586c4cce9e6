#include "policy/allocators/uniform.h"

#include <cstddef>

namespace winnow::policy {

std::vector<int> allocate_uniform(int n_heads, int budget_rows) {
  return std::vector<int>(static_cast<size_t>(n_heads), budget_rows);
}

}  // namespace winnow::policy
