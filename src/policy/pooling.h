// Heads that compete for rows: what adakv and pool have in common.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "policy/allocator.h"

namespace winnow::policy {

// How many rows each head keeps when exactly n_rows stay: of every head the protected ones and its best, up to n_least and
// up to the given share of n_rows / n_heads (rounded down); of all others the best under the strict order: score
// descending, then head and slot ascending. `pool` is scratch.
void pool_rows(int64_t n_rows, float budget_floor, std::span<const HeadDemand> heads,
               std::vector<uint32_t>& pool, std::span<int> n_keep);

}  // namespace winnow::policy
