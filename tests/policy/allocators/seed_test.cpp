// pyramid@seed and squeeze@seed: the lines and weights of the implementation they repeat.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "policy/allocators.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Rows = std::vector<double>;

Rows line(const LayerAllocator::Budget& budget, size_t n_layers, const std::string& beta) {
  OptionReader reader({{"beta", beta}});
  Rows rows(n_layers);
  make_pyramid_seed(reader)->allocate(budget, {}, rows);
  return rows;
}

TEST(PyramidSeed, FallsFromTwiceTheBudgetLessTheFloorToTheFloor) {
  const LayerAllocator::Budget budget{.rows = 100, .n_least = 5, .n_most = 1000};
  EXPECT_EQ(line(budget, 3, "2"), (Rows{195, 100, 5}));
  EXPECT_EQ(line(budget, 3, "1.5"), (Rows{147.5, 100, 52.5}));
  EXPECT_EQ(line(budget, 3, "1"), (Rows{100, 100, 100}));
  EXPECT_EQ(line(budget, 3, "3"),
            (Rows{290, 100, 0}));  // raised to the floor, and the rest lowered
  EXPECT_EQ(line(budget, 1, "2"), Rows{100});
}

TEST(SqueezeSeed, MeasuresTheMeanCosineOfPairs) {
  OptionReader reader;
  const auto squeeze = make_squeeze_seed(reader);
  for (unsigned seed = 0; seed < 20; ++seed) {
    const int n = 2 + static_cast<int>(seed);
    std::vector<TinyHead> heads{TinyHead::random(n, seed), TinyHead::random(n + 3, seed + 100)};
    double expected = 0;
    for (TinyHead& head : heads) {
      const auto n_rows = static_cast<int>(head.positions.size());
      head.hidden.assign(static_cast<size_t>(n_rows), cache::kVisible);
      head.hidden[1] = seed % 2 == 0 ? cache::kVisible : cache::kHidden;
      double sum = 0;
      int n_pairs = 0;
      for (int i = 0; i < n_rows; ++i) {
        for (int j = 0; j < n_rows; ++j) {
          if (i == j || head.hidden[static_cast<size_t>(i)] != cache::kVisible ||
              head.hidden[static_cast<size_t>(j)] != cache::kVisible) {
            continue;
          }
          double dot = 0;
          double own = 0;
          double other = 0;
          for (int c = 0; c < head.head_dim; ++c) {
            const auto a =
                static_cast<double>(head.keys[static_cast<size_t>(i * head.head_dim + c)]);
            const auto b =
                static_cast<double>(head.keys[static_cast<size_t>(j * head.head_dim + c)]);
            dot += a * b;
            own += a * a;
            other += b * b;
          }
          sum += dot / std::sqrt(own * other);
          ++n_pairs;
        }
      }
      expected += n_pairs > 0 ? sum / n_pairs / 2 : 0;
    }
    Scratch scratch;
    EXPECT_NEAR(squeeze->measure(TinyLayer(heads).view(), scratch), expected, 1e-5);
  }
}

TEST(SqueezeSeed, GivesMoreToLayersWhoseKeysDiffer) {
  const auto rows_of = [](const Rows& measured, const std::string& strength) {
    OptionReader reader({{"strength", strength}});
    Rows rows(measured.size());
    make_squeeze_seed(reader)->allocate({.rows = 100, .n_least = 5, .n_most = 1000}, measured,
                                        rows);
    return rows;
  };
  EXPECT_EQ(rows_of({0.5, 0, 1, 0.5}, "1"), (Rows{100, 200, 0, 100}));
  EXPECT_EQ(rows_of({0.5, 0, 1, 0.5}, "0.5"), (Rows{100, 150, 50, 100}));
  EXPECT_EQ(rows_of({0.5, -0.5, 2, 0.5}, "1"), (Rows{100, 200, 0, 100}));
  EXPECT_EQ(rows_of({1, 1}, "1"), (Rows{100, 100}));
}

}  // namespace
}  // namespace winnow::policy
