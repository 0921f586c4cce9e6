#include "policy/division.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace winnow::policy {
namespace {

using Rows = std::vector<int64_t>;

Rows divide(int64_t total, int64_t unit, std::vector<Share> shares) {
  Division division;
  division.shares = std::move(shares);
  divide_rows(total, unit, division);
  return division.rows;
}

TEST(Division, RoundsByLargestRemainderTheFirstOfEquals) {
  EXPECT_EQ(divide(10, 1, {{3.3, 0, 99}, {3.3, 0, 99}, {3.4, 0, 99}}), (Rows{3, 3, 4}));
  EXPECT_EQ(divide(5, 1, {{2.5, 0, 99}, {2.5, 0, 99}}), (Rows{3, 2}));
  EXPECT_EQ(divide(0, 1, {{0, 0, 5}, {0, 0, 5}}), (Rows{0, 0}));
}

TEST(Division, WhatOneCannotUseGoesToTheOthersInEqualParts) {
  EXPECT_EQ(divide(30, 1, {{10, 0, 4}, {10, 0, 99}, {10, 0, 99}}), (Rows{4, 13, 13}));
  EXPECT_EQ(divide(30, 1, {{10, 0, 4}, {10, 0, 11}, {10, 0, 99}}), (Rows{4, 11, 15}));
}

TEST(Division, WhatOneMustHaveIsTakenFromTheOthersInEqualParts) {
  EXPECT_EQ(divide(30, 1, {{2, 6, 99}, {14, 6, 99}, {14, 6, 99}}), (Rows{6, 12, 12}));
}

TEST(Division, KeepsWholeMultiplesOfTheUnitWhereBoundsAllow) {
  EXPECT_EQ(divide(30, 3, {{11.5, 0, 99}, {18.5, 0, 99}}), (Rows{12, 18}));
  EXPECT_EQ(divide(31, 3, {{11.5, 0, 99}, {19.5, 0, 99}}), (Rows{12, 19}));  // 31 is no multiple
  EXPECT_EQ(divide(30, 3, {{11.5, 0, 10}, {18.5, 0, 99}}), (Rows{10, 20}));
}

TEST(Division, IsExactAndWithinBoundsForAnyShares) {
  std::mt19937 random(5);
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 20000; ++trial) {
    std::vector<Share> shares(static_cast<size_t>(draw(1, 12)));
    int64_t least = 0;
    int64_t most = 0;
    const int scale = trial % 3 == 0 ? 1000000000 : 100;
    for (Share& share : shares) {
      share.low = draw(0, scale);
      share.high = share.low + draw(0, scale) * draw(0, 1);
      share.target = std::uniform_real_distribution<double>(0, 2.0 * scale)(random);
      least += share.low;
      most += share.high;
    }
    const int64_t total = std::uniform_int_distribution<int64_t>(least, most)(random);
    const Rows rows = divide(total, draw(1, 8), shares);
    ASSERT_EQ(std::accumulate(rows.begin(), rows.end(), int64_t{0}), total);
    for (size_t i = 0; i < shares.size(); ++i) {
      ASSERT_GE(rows[i], shares[i].low);
      ASSERT_LE(rows[i], shares[i].high);
    }
  }
}

}  // namespace
}  // namespace winnow::policy
