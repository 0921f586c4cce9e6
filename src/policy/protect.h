// What must stay in a head whatever its worth: the first positions, the last rows, and spans of positions between them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/rows.h"
#include "policy/select.h"

namespace winnow::policy {

struct PositionSpan {
  int begin;
  int end;
};

struct Protection {
  int n_sink = 0;                            // positions 0 … n_sink-1
  int n_recent = 0;                          // the last rows
  std::span<const PositionSpan> spans = {};  // ascending, none overlap
};

// How many positions of the spans are no sinks.
int64_t n_positions(const Protection& protection);

// How many of a head's first and last rows are protected, hidden ones not counted. A sink is known by its position: in a
// head without position 0, the first row is not a sink. The two ranges never overlap.
Protected protect(const cache::HeadRows& rows, const Protection& protection);

// Whether the spans hold a position.
bool is_in_spans(std::span<const PositionSpan> spans, int pos);

// How many visible rows of a head the spans protect, those that protect() counts left out.
int n_in_spans(const cache::HeadRows& rows, const Protection& protection);

}  // namespace winnow::policy
