// The last of a policy's answers: when are heads cut back to their shares?
#pragma once

#include <cstdint>

#include "policy/policy.h"

namespace winnow::policy {

// Rows in the layers that a policy cuts.
struct RowsHeld {
  int n_layers = 0;
  int n_kv_heads = 0;
  int64_t longest_head = 0;
  int64_t largest_layer = 0;  // of all its heads
  int64_t all = 0;
};

// Rows per KV head, rounded up, where there are most: of heads that share a budget, the average.
int64_t rows_per_head(const Policy& policy, const RowsHeld& held);

// While decoding: whether so many rows per KV head have used up the budget and the slack on top of it.
bool is_due(const Policy& policy, int64_t rows_per_head);

}  // namespace winnow::policy
