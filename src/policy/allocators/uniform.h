// uniform: every KV head may keep the same number of rows.
#pragma once

#include <vector>

namespace winnow::policy {

// Rows each of `n_heads` KV heads, of one layer or several, may keep [n_heads].
std::vector<int> allocate_uniform(int n_heads, int budget_rows);

}  // namespace winnow::policy
