#include "policy/allocators/uniform.h"

#include <cstddef>

namespace winnow::policy {

std::vector<int> allocate_uniform(int n_kv_heads, int budget_rows) {
  return std::vector<int>(static_cast<size_t>(n_kv_heads), budget_rows);
}

}  // namespace winnow::policy
