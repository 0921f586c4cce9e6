// threshold: rows above it stay, sinks and recent rows anyway, and the budget is the most.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "policy/budget.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

// kvzip scores are what the cache has noted, which tiny heads call norms.
TinyHead scored(std::vector<float> scores) {
  return TinyHead::with_norms(std::move(scores));
}

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Threshold, KeepsWhatIsAboveIt) {
  const TinyLayer layer({scored({0, 0.3F, 0.2F, 0.1F, 0.5F, 0}), scored({0, 0, 0, kNan, 0, 0}),
                         scored({1, 1, 1, 1, kInfinity, 1})});
  const auto kept = [&](const std::string& options) {
    return layer.kept_by(Policy::parse("kvzip+threshold:" + options));
  };
  EXPECT_EQ(kept("budget=6,threshold=0.2,n_sink=1,n_recent=0"),
            (KeptSlots{{0, 1, 4}, {0}, {0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(kept("budget=6,threshold=0.2,n_sink=0,n_recent=2"),
            (KeptSlots{{1, 4, 5}, {4, 5}, {0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(kept("budget=100,threshold=1,n_sink=0,n_recent=0"), (KeptSlots{{}, {}, {4}}));
  EXPECT_EQ(kept("budget=100,threshold=-1,n_sink=0,n_recent=0"),
            (KeptSlots{{0, 1, 2, 3, 4, 5}, {0, 1, 2, 4, 5}, {0, 1, 2, 3, 4, 5}}));
}

TEST(Threshold, KeepsNoMoreThanTheBudget) {
  const TinyLayer layer({scored({0.3F, 0.4F, 0.5F, 0.6F}), scored({0.2F, 0.1F, 0.7F, 0})});
  const auto kept = [&](const std::string& allocator, const std::string& options) {
    return layer.kept_by(
        Policy::parse("kvzip+threshold" + allocator + ":n_sink=0,n_recent=0," + options));
  };
  EXPECT_EQ(kept("+uniform", "budget=2,threshold=0.15"), (KeptSlots{{2, 3}, {0, 2}}));
  EXPECT_EQ(kept("", "budget=2,threshold=0.45"), (KeptSlots{{2, 3}, {2}}));
  EXPECT_EQ(kept("", "budget=1,threshold=0.45"), (KeptSlots{{3}, {2}}));
}

TEST(Threshold, NeedsNoBudget) {
  EXPECT_EQ(Policy::parse("kvzip+threshold:threshold=0.05").spec(),
            "kvzip+threshold:budget=100%,n_recent=0,threshold=0.05");
  EXPECT_EQ(Policy::parse("kvzip+threshold", "64").spec(), "kvzip+threshold:budget=64,n_recent=0");
  EXPECT_EQ(Policy::parse("kvzip+threshold:budget=64,n_recent=9").n_recent(), 9);
  const std::string refused =
      test::error_of(ErrorCode::kInvalidArgument, [] { Policy::parse("kvzip+threshold+chunkkv"); });
  EXPECT_THAT(refused, ::testing::HasSubstr("'threshold' chooses rows"));
  Policy policy = Policy::parse("kvzip+threshold");
  policy.resolve({.n_document = 40, .n_extra = 5, .row_bytes = 100, .n_heads = 4});
  EXPECT_EQ(policy.budget_rows(), 45);
  EXPECT_EQ(policy.n_recent(), 0);
}

}  // namespace
}  // namespace winnow::policy
