// uniform: every KV head may keep the same number of rows.
#pragma once

#include <span>

namespace winnow::policy {

// Rows each KV head, of one layer or several, may keep: to n_keep [n_heads].
void allocate_uniform(int budget_rows, std::span<int> n_keep);

}  // namespace winnow::policy
