// Spearman's rank correlation: whether two scores order the same things alike.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace winnow::eval {

// 1 for the smallest; equal values share the mean of their ranks. No value is NaN.
std::vector<double> average_ranks(std::span<const double> values);

// Pearson's correlation of the ranks, in [-1, 1]; a and b have the same length. None where one of them has no two different
// values.
std::optional<double> spearman(std::span<const double> a, std::span<const double> b);

// The partial correlation of a and b without what both owe to c, from the three correlations of their ranks; 0 where a or b
// orders as c does.
double partial_correlation(double ab, double ac, double bc);

}  // namespace winnow::eval
