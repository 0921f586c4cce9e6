// Rank correlations against scipy 1.x: scipy.stats.spearmanr and rankdata.

#include "eval/rank_correlation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace winnow::eval {
namespace {

using Values = std::vector<double>;

TEST(Ranks, OfEqualValuesAreTheirMean) {
  EXPECT_EQ(average_ranks(Values{0, 2, 3, 2}), (Values{1, 2.5, 4, 2.5}));  // rankdata's example
  EXPECT_EQ(average_ranks(Values{7, 7, 7}), (Values{2, 2, 2}));
  EXPECT_EQ(average_ranks(Values{}), Values{});
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(average_ranks(Values{kInfinity, -kInfinity, 0.0, -0.0, kInfinity}),
            (Values{4.5, 1, 2.5, 2.5, 4.5}));
}

TEST(Spearman, AgreesWithScipy) {
  // spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7])
  EXPECT_NEAR(*spearman(Values{1, 2, 3, 4, 5}, Values{5, 6, 7, 8, 7}), 0.8207826816681233, 1e-15);
  // Both with ties.
  EXPECT_NEAR(*spearman(Values{0.3, 1.2, 1.2, 5, -2, 0.3, 8, 8, 8, 1},
                        Values{1, 1, 2, 3, 0, 4, 4, 5, -1, 2}),
              0.3177708873188251, 1e-15);
}

// (r_ab - r_ac r_bc) / sqrt((1 - r_ac^2)(1 - r_bc^2)), as pingouin.partial_corr computes it.
TEST(Partial, LeavesOutWhatBothOweToAThird) {
  EXPECT_NEAR(partial_correlation(0.5, 0.6, 0.3), 0.32 / std::sqrt(0.64 * 0.91), 1e-15);
  EXPECT_NEAR(partial_correlation(0.18, 0.6, 0.3), 0, 1e-15);
  EXPECT_EQ(partial_correlation(1, 0.4, 0.4), 1);
  EXPECT_EQ(partial_correlation(0.7, 1, 0.7), 0);
  EXPECT_EQ(partial_correlation(0.7, 0.7, -1), 0);
}

TEST(Spearman, SeesTheOrderAlone) {
  const Values values = {3, -1, 4, 1.5, 9, 2.6};
  Values image;
  for (const double value : values) {
    image.push_back(std::exp(value));
  }
  EXPECT_EQ(spearman(values, image), 1);
  for (double& value : image) {
    value = -value;
  }
  EXPECT_EQ(spearman(values, image), -1);
}

TEST(Spearman, IsUndefinedOfAConstant) {
  EXPECT_EQ(spearman(Values{1, 2, 3}, Values{5, 5, 5}), std::nullopt);
  EXPECT_EQ(spearman(Values{1}, Values{2}), std::nullopt);
  EXPECT_EQ(spearman(Values{}, Values{}), std::nullopt);
}

}  // namespace
}  // namespace winnow::eval
