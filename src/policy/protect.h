// What must stay in a head whatever its worth: the first positions and the last rows.
#pragma once

#include "cache/rows.h"
#include "policy/select.h"

namespace winnow::policy {

struct Protection {
  int n_sink = 0;    // positions 0 … n_sink-1
  int n_recent = 0;  // the last rows
};

// How many of a head's first and last rows are protected, hidden ones not counted. A sink is known by its position: in a
// head without position 0, the first row is not a sink. The two ranges never overlap.
Protected protect(const cache::HeadRows& rows, const Protection& protection);

}  // namespace winnow::policy
