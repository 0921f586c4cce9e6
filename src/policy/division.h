// Budgets in whole rows: the one place where shares are rounded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::policy {

struct Share {
  double target;  // rows wanted
  int64_t low;    // rows that it must have
  int64_t high;   // rows that it can use
};

// Rows for each of several shares, and scratch that is used again and again.
struct Division {
  std::vector<Share> shares;
  std::vector<int64_t> rows;  // [n_shares]

  std::vector<double> levels;
  std::vector<int> order;
};

// Divides exactly `total` rows over division.shares, to division.rows: each has low … high rows, and what one cannot use
// or must have beyond its target is taken from the others in equal parts. Rounded to whole multiples of `unit`, as far as low,
// high and the total allow, by largest remainder, the first of equals. sum of low <= total <= sum of high.
void divide_rows(int64_t total, int64_t unit, Division& division);

}  // namespace winnow::policy
