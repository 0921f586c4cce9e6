// quest: the bound of a page against the products of its keys.

#include <gtest/gtest.h>

#include <cmath>

#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

TEST(Quest, ScoresAPageByTheBoundOfItsKeys) {
  // Pages of two positions; the last one is not full.
  TinyLayer layer(
      {TinyHead::with_rows(2, {1, 5, 3, 2, 0, -1, 0, -2, 4, 4}, std::vector<float>(10))});
  layer.set_queries(std::vector<float>{9, 9, 9, 9, 9, 9, 2, -4, 0, 2}, 1, 2, 1.0F);
  // The mean of the last two queries is (1, -1): of bounds 1 to 3 and 2 to 5, 3 - 2; then 0 - -2; then 4 - 4.
  const std::vector<GivenOption> options{{"page", "2"}, {"obs_window", "2"}};
  EXPECT_EQ(layer.scores_by(make_quest, options, 0, 0), (std::vector<float>{1, 1, 2, 2, 0}));
}

TEST(Quest, PagesAreOfPositionsNotOfRows) {
  TinyHead head = TinyHead::with_rows(2, {1, 0, 2, 0, 3, 0, 4, 0}, std::vector<float>(8));
  head.positions = {1, 4, 5, 9};
  TinyLayer layer({head});
  layer.set_queries(std::vector<float>{1, 0}, 1, 1, 1.0F, 9);
  EXPECT_EQ(layer.scores_by(make_quest, {{"page", "4"}}, 0, 0), (std::vector<float>{1, 3, 3, 4}));
}

TEST(Quest, NoKeyOfAPageIsBeyondItsBound) {
  constexpr int kRows = 200;
  constexpr int kDim = 16;
  constexpr int kHeads = 3;
  constexpr int kWindow = 5;
  const TinyHead head = TinyHead::random(kRows, 3, kDim);
  std::mt19937 random(4);
  const std::vector<float> q = test::random_floats(random, kRows * kHeads * kDim);
  TinyLayer layer({head});
  layer.set_queries(q, kHeads, kWindow, 1.0F);
  const std::vector<float> scores =
      layer.scores_by(make_quest, {{"page", "8"}, {"obs_window", "5"}}, 0, 0);
  for (size_t row = 0; row < kRows; ++row) {
    double mean = 0;  // over heads and queries; a mean of bounds is above a bound of means
    for (size_t t = kRows - kWindow; t < kRows; ++t) {
      for (size_t i = 0; i < kHeads * kDim; ++i) {
        mean += static_cast<double>(q[t * kHeads * kDim + i]) *
                static_cast<double>(head.keys[row * kDim + i % kDim]) / (kHeads * kWindow);
      }
    }
    EXPECT_GE(static_cast<double>(scores[row]), mean - 1e-5);
    EXPECT_EQ(scores[row], scores[row / 8 * 8]);
  }
  // A page of one row is its product.
  const std::vector<float> single =
      layer.scores_by(make_quest, {{"page", "1"}, {"obs_window", "5"}}, 0, 0);
  double first = 0;
  for (size_t t = kRows - kWindow; t < kRows; ++t) {
    for (size_t i = 0; i < kHeads * kDim; ++i) {
      first += static_cast<double>(q[t * kHeads * kDim + i]) *
               static_cast<double>(head.keys[i % kDim]) / (kHeads * kWindow);
    }
  }
  EXPECT_NEAR(static_cast<double>(single[0]), first, 1e-5);
}

TEST(Quest, RowsThatAreHiddenChangeNothing) {
  TinyHead head = TinyHead::random(60, 7);
  head.hidden.assign(60, 0);
  for (const size_t row : {3, 4, 5, 17, 40}) {
    head.hidden[row] = 1;
  }
  TinyLayer layer({head});
  TinyLayer without({head.compacted()});
  const std::vector<float> scores = layer.scores_by(make_quest, {}, 0, 0);
  const std::vector<float> expected = without.scores_by(make_quest, {}, 0, 0);
  size_t i = 0;
  for (size_t row = 0; row < scores.size(); ++row) {
    if (head.hidden[row] == 0) {
      EXPECT_EQ(scores[row], expected[i++]);
    } else {
      EXPECT_TRUE(std::isnan(scores[row]));
    }
  }
}

}  // namespace
}  // namespace winnow::policy
