#include <gtest/gtest.h>

#include <numeric>

#include "kernels/parallel.h"
#include "policy/allocators.h"
#include "policy/policy.h"

namespace winnow::policy {
namespace {

using Rows = std::vector<int64_t>;

// Rows per KV head of each layer, before and after rounding.
std::vector<double> line(const LayerAllocator::Budget& budget, size_t n_layers,
                         const std::string& beta = "20") {
  OptionReader reader({{"beta", beta}});
  std::vector<double> rows(n_layers);
  make_pyramid(reader)->allocate(budget, {}, rows);
  EXPECT_TRUE(reader.problems().empty());
  return rows;
}

Rows rounded(const std::vector<double>& line, int64_t mean) {
  Division division;
  for (const double rows : line) {
    division.shares.push_back({.target = rows, .low = 0, .high = 1 << 20});
  }
  divide_rows(mean * std::ssize(line), 1, division);
  return division.rows;
}

Rows layers_of(const Rows& rows, std::initializer_list<size_t> layers) {
  Rows some;
  for (const size_t layer : layers) {
    some.push_back(rows[layer]);
  }
  return some;
}

// kvpress' values for a prompt of 4096 tokens, 32 layers, a window of 64: it stops at the rows less the window.
TEST(Pyramid, KeepsWhatKvpressKeeps) {
  const Rows quarter = rounded(line({.rows = 3072, .n_least = 64, .n_most = 4032}, 32), 3072);
  EXPECT_EQ(layers_of(quarter, {0, 1, 15, 16, 30, 31}), (Rows{4032, 3970, 3103, 3041, 2174, 2112}));
  const Rows half = rounded(line({.rows = 2048, .n_least = 64, .n_most = 4032}, 32), 2048);
  EXPECT_EQ(layers_of(half, {0, 1, 15, 16, 30, 31}), (Rows{3994, 3868, 2111, 1985, 228, 102}));
}

// There kvpress gives up the line: 1024 rows in every layer.
TEST(Pyramid, RaisesItsEndToWhatHeadsMustKeep) {
  const std::vector<double> rows = line({.rows = 1024, .n_least = 64, .n_most = 4096}, 32);
  EXPECT_EQ(rows.front(), 1984);
  EXPECT_EQ(rows.back(), 64);
}

TEST(Pyramid, BetaSaysHowSteepItIs) {
  const LayerAllocator::Budget budget{.rows = 100, .n_least = 5, .n_most = 1000};
  EXPECT_EQ(line(budget, 3, "1"), (std::vector<double>{100, 100, 100}));
  EXPECT_EQ(line(budget, 3, "2"), (std::vector<double>{150, 100, 50}));
  EXPECT_EQ(line(budget, 3, "1000000"), (std::vector<double>{195, 100, 5}));
  EXPECT_EQ(line(budget, 1), (std::vector<double>{100}));
}

TEST(Pyramid, LayersShareTheBudgetExactlyAndHeadsOfALayerAreEqual) {
  const Policy policy = Policy::parse("knorm+pyramid:budget=101,n_sink=2,n_recent=3");
  Division division;
  policy.divide(std::vector<int>(7 * 3, 150), 3, division);
  EXPECT_EQ(std::accumulate(division.rows.begin(), division.rows.end(), int64_t{0}), 101 * 7 * 3);
  EXPECT_EQ(division.rows.front(), 150 * 3);
  EXPECT_TRUE(std::is_sorted(division.rows.rbegin(), division.rows.rend()));
  for (const int64_t rows : division.rows) {
    EXPECT_EQ(rows % 3, 0);
  }
}

TEST(Pyramid, LayersThatHaveTooFewRowsLeaveTheirPartToOthers) {
  const Policy policy = Policy::parse("knorm+pyramid:budget=100,n_sink=0,n_recent=0,beta=2");
  Division division;
  policy.divide(std::vector<int>{30, 30, 200, 200, 200, 200}, 2, division);
  EXPECT_EQ(division.rows, (Rows{60, 320, 220}));  // 150, 100 and 50 per head, and 60 more each
  policy.divide(std::vector<int>{30, 30, 100, 100, 170, 170}, 2, division);
  EXPECT_EQ(division.rows, (Rows{60, 200, 340}));  // just the budget
}

}  // namespace
}  // namespace winnow::policy
