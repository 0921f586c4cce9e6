#include "policy/division.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace winnow::policy {
namespace {

// Every target with the same amount on top of it, within its bounds: to `levels`. Returns their sum.
double raise(std::span<const Share> shares, double amount, std::span<double> levels) {
  double sum = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    levels[i] = std::clamp(shares[i].target + amount, static_cast<double>(shares[i].low),
                           static_cast<double>(shares[i].high));
    sum += levels[i];
  }
  return sum;
}

// The levels whose sum is the total, or less by no more than rounding.
void find_levels(double total, std::span<const Share> shares, std::span<double> levels) {
  const double rounding = 1e-9 * total;
  if (std::abs(raise(shares, 0, levels) - total) <= rounding) {
    return;
  }
  double low = 0;  // amounts: too little, too much
  double high = 0;
  for (const Share& share : shares) {
    low = std::min(low, static_cast<double>(share.low) - share.target);
    high = std::max(high, static_cast<double>(share.high) - share.target);
  }
  // Each half-way point is one bit of the amount; rows are far fewer than 2^53.
  for (int bit = 0; bit < 80; ++bit) {
    const double middle = low + (high - low) / 2;
    (raise(shares, middle, levels) <= total ? low : high) = middle;
  }
  raise(shares, low, levels);
}

}  // namespace

void divide_rows(int64_t total, int64_t unit, Division& division) {
  const std::span<const Share> shares(division.shares);
  std::vector<double>& levels = division.levels;
  levels.resize(shares.size());
  division.rows.resize(shares.size());
  find_levels(static_cast<double>(total), shares, levels);

  int64_t rest = total;
  for (size_t i = 0; i < shares.size(); ++i) {
    const bool is_full = levels[i] >= static_cast<double>(shares[i].high);
    const auto whole = static_cast<int64_t>(levels[i] / static_cast<double>(unit)) * unit;
    const int64_t rows =
        is_full ? shares[i].high : std::clamp(whole, shares[i].low, shares[i].high);
    division.rows[i] = rows;
    levels[i] -= static_cast<double>(rows);  // the remainder
    rest -= rows;
  }
  if (rest == 0) {
    return;
  }
  division.order.resize(shares.size());
  std::iota(division.order.begin(), division.order.end(), 0);
  const auto has_larger_remainder = [&levels](int a, int b) {
    const double of_a = levels[static_cast<size_t>(a)];
    const double of_b = levels[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  };
  std::sort(division.order.begin(), division.order.end(), has_larger_remainder);
  while (rest != 0) {
    const int64_t before = rest;
    for (const int index : division.order) {
      const auto i = static_cast<size_t>(index);
      const int64_t more = rest > 0 ? std::min({unit, rest, shares[i].high - division.rows[i]})
                                    : std::max(rest, shares[i].low - division.rows[i]);
      division.rows[i] += more;
      rest -= more;
    }
    WINNOW_CHECK(rest != before);
  }
}

}  // namespace winnow::policy
