#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policy/golden_fixture.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The slots that a head with rows at positions 0, 1, … keeps.
Slots kept(const std::string& options, const std::vector<float>& squared_norms) {
  const Policy policy = Policy::parse("knorm:" + options);
  const TinyLayer layer({TinyHead::with_norms(squared_norms)});
  return layer.kept_by(policy).at(0);
}

TEST(Knorm, NeedsOnlyTheNorms) {
  EXPECT_TRUE(Policy::parse("knorm:budget=512").needs().key_norms);
}

TEST(Knorm, KeepsTheLowestNorms) {
  EXPECT_EQ(kept("budget=3,n_sink=0,n_recent=0", {5, 1, 4, 2, 3, 6}), (Slots{1, 3, 4}));
}

TEST(Knorm, KeepsTheHighestNormsWhenAsked) {
  EXPECT_EQ(kept("budget=3,n_sink=0,n_recent=0,keep=high", {5, 1, 4, 2, 3, 6}), (Slots{0, 2, 5}));
}

TEST(Knorm, TiesKeepTheLowerPosition) {
  EXPECT_EQ(kept("budget=2,n_sink=0,n_recent=0", {2, 2, 2, 2}), (Slots{0, 1}));
  EXPECT_EQ(kept("budget=2,n_sink=0,n_recent=0,keep=high", {2, 2, 2, 2}), (Slots{0, 1}));
}

TEST(Knorm, ZeroNormsTieWhateverTheirSign) {
  EXPECT_EQ(kept("budget=2,n_sink=0,n_recent=0", {1, 0.0F, -0.0F, 0.0F}), (Slots{1, 2}));
}

TEST(Knorm, InfiniteAndNanSinksStayProtected) {
  EXPECT_EQ(kept("budget=4,n_sink=2,n_recent=0", {kInfinity, kNan, 3, 1, 2, 4}),
            (Slots{0, 1, 3, 4}));
  EXPECT_EQ(kept("budget=4,n_sink=0,n_recent=2", {3, 1, 2, 4, kNan, kInfinity}),
            (Slots{1, 2, 4, 5}));
}

TEST(Knorm, NanIsEvictedFirstInBothDirections) {
  EXPECT_EQ(kept("budget=4,n_sink=0,n_recent=0", {1, kNan, kInfinity, 2, 3}), (Slots{0, 2, 3, 4}));
  EXPECT_EQ(kept("budget=4,n_sink=0,n_recent=0,keep=high", {1, kNan, 0, 2, 3}),
            (Slots{0, 2, 3, 4}));
}

TEST(Knorm, InfiniteNormsAreEvictedBeforeFiniteOnes) {
  EXPECT_EQ(kept("budget=2,n_sink=0,n_recent=0", {kInfinity, 3e38F, kInfinity, 1}), (Slots{1, 3}));
}

TEST(Knorm, ScoresWhatKvpressScores) {
  const std::vector<TinyHead> heads = golden::heads();
  EXPECT_NEAR(std::sqrt(heads[0].norms[5]), 1.816334, 1e-6);
  EXPECT_NEAR(std::sqrt(heads[1].norms[7]), 1.754400, 1e-6);
  double sum = 0;
  for (const TinyHead& head : heads) {
    for (const float norm : head.norms) {
      sum += std::sqrt(static_cast<double>(norm));
    }
  }
  EXPECT_NEAR(sum, 75.505032, 1e-5);
}

// The cache of the Q-Filters repository: 12 rows, of which the last 4 are a window.
TEST(Knorm, KeepsWhatACacheWithAWindowKeeps) {
  EXPECT_EQ(golden::kept_by("knorm:budget=12,n_sink=0,n_recent=4"),
            (KeptSlots{{0, 10, 12, 13, 14, 16, 17, 19, 20, 21, 22, 23},
                       {0, 2, 5, 6, 8, 12, 18, 19, 20, 21, 22, 23}}));
}

TEST(Knorm, GuardRefusesABudgetThatIsAllProtected) {
  EXPECT_THAT(test::error_of(ErrorCode::kInvalidArgument,
                             [] { Policy::parse("knorm:budget=8,n_sink=4,n_recent=4"); }),
              ::testing::HasSubstr("leave nothing to choose"));
}

}  // namespace
}  // namespace winnow::policy
