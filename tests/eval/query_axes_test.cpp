// Axes of planted rows, and of noise.

#include "eval/query_axes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/scratch.h"
#include "eval/numpy_random.h"

namespace winnow::eval {
namespace {

constexpr int kDim = 24;  // whole strips of the moments, and not a power of two

// n rows that are offset along `axis`, where noise is three times as wide.
std::vector<std::vector<float>> rows(NumpyRandom& random, int n, double offset, size_t axis) {
  std::vector<std::vector<float>> made(static_cast<size_t>(n), std::vector<float>(kDim));
  for (std::vector<float>& row : made) {
    for (size_t d = 0; d < row.size(); ++d) {
      const double wide = offset + 3 * random.standard_normal();
      row[d] = static_cast<float>(d == axis && offset != 0 ? wide : random.standard_normal());
    }
  }
  return made;
}

policy::PrincipalAxes axes_of(const std::vector<std::vector<float>>& rows) {
  kernels::QueryMoments moments({.n_heads = 1, .head_dim = kDim, .is_watched = {true}});
  std::vector<float> scratch(kernels::QueryMoments::scratch_floats(kDim) + 16);
  for (const std::vector<float>& row : rows) {
    moments.add(0, 0,
                {.q = row.data(), .stride = 0, .n_tokens = 1, .first_pos = 9, .turns = nullptr},
                kernels::Rotation{}, align_to_line(scratch.data()));
  }
  return query_axes(moments, 0, 0);
}

AxisProjections projections(const policy::PrincipalAxes& axes,
                            const std::vector<std::vector<float>>& rows) {
  AxisProjections made(axes);
  for (const std::vector<float>& row : rows) {
    made.add(row);
  }
  return made;
}

TEST(QueryAxes, FindADirectionThatWasPlanted) {
  NumpyRandom random(1);
  for (const double offset : {6.0, -6.0}) {
    const policy::PrincipalAxes axes = axes_of(rows(random, 2000, offset, 7));
    EXPECT_NEAR(axes.axis(0)[7], offset / 6, 1e-3);  // to the side of the mean
    const AxisProjections held_out = projections(axes, rows(random, 2000, offset, 7));
    EXPECT_NEAR(held_out.kappa(), 6, 0.3);  // 4 standard errors
    const Interval interval = held_out.kappa_interval();
    EXPECT_LT(interval.low, 6.2);
    EXPECT_GT(interval.high, 5.8);
    EXPECT_NEAR(interval.high - interval.low, 2 * 1.96 * 3 / std::sqrt(2000.0), 0.12);
    EXPECT_NEAR(held_out.energy(), 45.0 / (45 + 23), 0.02);
    EXPECT_GT(held_out.ratio(), 100);
    EXPECT_NEAR(held_out.ratio_of_abs(), 6.03 / std::sqrt(2 / M_PI), 0.3);
  }
}

TEST(QueryAxes, OfNoiseAreOnTheRightSideOfTheirOwnRowsOnly) {
  NumpyRandom random(2);
  constexpr int kHeads = 60;
  int n_positive = 0;
  for (int head = 0; head < kHeads; ++head) {
    const std::vector<std::vector<float>> fitted = rows(random, 100, 0, 0);
    const policy::PrincipalAxes axes = axes_of(fitted);
    EXPECT_GE(projections(axes, fitted).kappa(), 0);
    n_positive += projections(axes, rows(random, 200, 0, 0)).kappa() > 0 ? 1 : 0;
  }
  EXPECT_GT(n_positive, 15);  // half of 60, give or take 4 standard deviations
  EXPECT_LT(n_positive, 45);
}

TEST(QueryAxes, OfFewRowsAreABasisStill) {
  NumpyRandom random(3);
  const std::vector<std::vector<float>> fitted = rows(random, 5, 4, 2);
  const AxisProjections in_sample = projections(axes_of(fitted), fitted);
  double square = 0;
  for (const std::vector<float>& row : fitted) {
    for (const float element : row) {
      square += static_cast<double>(element) * static_cast<double>(element);
    }
  }
  EXPECT_GT(square, 0);
  EXPECT_GT(in_sample.energy(), 1.0 / 5);
  EXPECT_LE(in_sample.energy(), 1);
}

}  // namespace
}  // namespace winnow::eval
