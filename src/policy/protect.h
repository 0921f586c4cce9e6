// What must stay in a head whatever its worth: the first positions and the last rows.
#pragma once

#include <cstdint>
#include <span>

#include "policy/select.h"

namespace winnow::policy {

struct Protection {
  int n_sink = 0;    // positions 0 … n_sink-1
  int n_recent = 0;  // the last rows
};

// The protected slots of a head with rows at `positions` [n], ascending. A sink is known by its position: in a head
// without position 0, slot 0 is not a sink. The two ranges never overlap.
Protected protect(std::span<const int32_t> positions, const Protection& protection);

}  // namespace winnow::policy
