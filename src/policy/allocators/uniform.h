// uniform: every KV head may keep the same number of rows.
#pragma once

#include <vector>

namespace winnow::policy {

// Rows each head of a layer may keep [n_kv_heads]; their sum is n_kv_heads * budget_rows, without a remainder.
std::vector<int> allocate_uniform(int n_kv_heads, int budget_rows);

}  // namespace winnow::policy
