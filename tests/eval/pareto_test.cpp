// The front of random points against every pair of them.

#include "eval/pareto.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace winnow::eval {
namespace {

bool beats(const CostAndQuality& a, const CostAndQuality& b) {
  return a.bytes <= b.bytes && a.quality >= b.quality &&
         (a.bytes < b.bytes || a.quality > b.quality);
}

TEST(Pareto, FrontIsWhatNoPointBeats) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 500; ++trial) {
    const auto n = static_cast<size_t>(random() % 40);
    const unsigned n_values = 1 + random() % 12;  // few: many are equal
    std::vector<CostAndQuality> points;
    for (size_t i = 0; i < n; ++i) {
      points.push_back({.bytes = static_cast<double>(random() % n_values),
                        .quality = static_cast<double>(random() % n_values)});
    }
    std::vector<size_t> expected;
    for (size_t i = 0; i < n; ++i) {
      if (std::ranges::none_of(points,
                               [&](const auto& other) { return beats(other, points[i]); })) {
        expected.push_back(i);
      }
    }
    std::ranges::stable_sort(expected, {}, [&](size_t i) { return points[i].bytes; });
    ASSERT_EQ(pareto_front(points), expected) << "trial " << trial;
  }
}

TEST(Pareto, LeavesOutWhatIsNoNumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(pareto_front(std::vector<CostAndQuality>{{1, nan}, {nan, 9}, {2, 0.5}}),
            std::vector<size_t>{2});
  EXPECT_TRUE(pareto_front({}).empty());
}

}  // namespace
}  // namespace winnow::eval
