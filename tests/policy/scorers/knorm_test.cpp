#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

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

// Squared norms of the fixture's keys [2, 24], the float32 output of a linear congruential generator with seed 1.
std::vector<std::vector<float>> fixture_norms() {
  std::vector<std::vector<float>> norms(2, std::vector<float>(24));
  uint32_t state = 1;
  for (std::vector<float>& head : norms) {
    for (float& norm : head) {
      for (int dim = 0; dim < 8; ++dim) {
        state = 1664525 * state + 1013904223;
        const auto key = static_cast<float>(state / 4294967296.0 * 2 - 1);
        norm += key * key;
      }
    }
  }
  return norms;
}

TEST(Knorm, KeepsWhatOtherImplementationsKeep) {
  const std::vector<std::vector<float>> norms = fixture_norms();
  EXPECT_NEAR(std::sqrt(norms[0][5]), 1.816334F, 1e-6F);
  // kvpress, half of 24 rows
  EXPECT_EQ(kept("budget=12,n_sink=0,n_recent=0", norms[0]),
            (Slots{0, 3, 7, 10, 12, 13, 14, 16, 17, 19, 20, 21}));
  EXPECT_EQ(kept("budget=12,n_sink=0,n_recent=0", norms[1]),
            (Slots{0, 2, 5, 6, 8, 10, 12, 15, 16, 18, 19, 22}));
  // the cache of the Q-Filters repository, 12 rows of which the last 4 are a window
  EXPECT_EQ(kept("budget=12,n_sink=0,n_recent=4", norms[0]),
            (Slots{0, 10, 12, 13, 14, 16, 17, 19, 20, 21, 22, 23}));
  EXPECT_EQ(kept("budget=12,n_sink=0,n_recent=4", norms[1]),
            (Slots{0, 2, 5, 6, 8, 12, 18, 19, 20, 21, 22, 23}));
}

TEST(Knorm, GuardRefusesABudgetThatIsAllProtected) {
  EXPECT_THAT(test::error_of(ErrorCode::kInvalidArgument,
                             [] { Policy::parse("knorm:budget=8,n_sink=4,n_recent=4"); }),
              ::testing::HasSubstr("leave nothing to choose"));
}

}  // namespace
}  // namespace winnow::policy
