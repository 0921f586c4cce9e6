// What must stay in a head whatever its worth: the first positions, the last rows, and spans of positions between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/rows.h"
#include "policy/select.h"
#include "policy/spans.h"

namespace winnow::policy {

struct Protection {
  int n_sink = 0;                            // positions 0 … n_sink-1
  int n_recent = 0;                          // the last rows
  std::span<const PositionSpan> spans = {};  // ascending, none overlap
};

// How many rows the spans hold at least once all their positions are read, beside the sinks.
int64_t n_held(const Protection& protection);

// How many of a head's first and last rows are protected, hidden ones not counted. A sink is known by its position: in a
// head without position 0, the first row is not a sink. The two ranges never overlap.
Protected protect(const cache::HeadRows& rows, const Protection& protection);

// How many visible rows of a head the spans hold, beside those that protect() counts. Of the rows that a span keeps at
// least, these come first.
int n_held(const cache::HeadRows& rows, const Protection& protection);

// Which ones: to `held`, ascending. `visible`: the slots of the head's visible rows; scores [rows.n], by which a span that is
// not held wholly keeps its best.
void find_held(const cache::HeadRows& rows, const Protection& protection,
               std::span<const int> visible, std::span<const float> scores, Scratch& scratch,
               std::vector<int>& held);

}  // namespace winnow::policy
