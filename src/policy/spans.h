// Spans of positions that stay, wholly or as so many of their best rows, and how users spell how much.
#pragma once

#include <climits>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::policy {

// Positions [begin, end). Of the rows of each head in it, n_least stay at least: the best, or all where there are no more.
struct PositionSpan {
  int begin;
  int end;
  int n_least = INT_MAX;
};

// How much of a span stays: all of it, so many rows, or a share of them.
struct Floor {
  int rows = 0;          // where above 0, so many
  double percent = 100;  // else this share, rounded up

  int of(int n_positions) const;
  std::string to_string() const;  // "8", "12.5%"
};

// "8" or "12.5%". Throws invalid_argument: not of that form, no rows, more than 100 %.
Floor parse_floor(std::string_view text);

// TEXT@FLOOR cut in two: a floor is a number, with or without %, behind the last @. Without one, all stays. Throws what
// parse_floor throws.
struct FlooredText {
  std::string_view text;
  Floor floor;
};
FlooredText split_floor(std::string_view text);

// The same promises by spans that are ascending and do not overlap: where some do, each part keeps the largest of their
// shares, rounded up, so each span keeps what it would alone or more.
std::vector<PositionSpan> disjoint(std::vector<PositionSpan> spans);

// The span that holds a position, or null. Spans are ascending and do not overlap.
const PositionSpan* span_at(std::span<const PositionSpan> spans, int pos);

}  // namespace winnow::policy
