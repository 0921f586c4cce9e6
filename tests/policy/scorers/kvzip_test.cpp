// kvzip: what the replay found is the score; rows without it come first. tests/engine/replay_test.cpp has the replay.
#include <gtest/gtest.h>

#include <limits>

#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Kvzip, KeepsWhatTheReplayNeededAndAllThatWasNotReplayed) {
  const TinyLayer layer({TinyHead::with_norms(
      {kInfinity, kInfinity, 0.1F, 0.4F, 0.2F, 0.9F, 0.3F, kInfinity, kInfinity})});
  const auto kept = [&](const std::string& options) {
    return layer.kept_by(Policy::parse("kvzip:n_sink=1,n_recent=1," + options))[0];
  };
  EXPECT_EQ(kept("budget=8"), (std::vector<int>{0, 1, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(kept("budget=6"), (std::vector<int>{0, 1, 3, 5, 7, 8}));
  EXPECT_EQ(kept("budget=4"), (std::vector<int>{0, 1, 7, 8}));
  EXPECT_EQ(kept("budget=3"), (std::vector<int>{0, 1, 8}));
}

TEST(Kvzip, DividesOnePoolOverAllHeadsUnlessAnAllocatorIsNamed) {
  const TinyLayer layer({TinyHead::with_norms({0.9F, 0.8F, 0.7F, 0.6F}),
                         TinyHead::with_norms({0.1F, 0.2F, 0.3F, 0.5F})});
  const std::string options = ":budget=2,n_sink=0,n_recent=0";
  EXPECT_EQ(layer.kept_by(Policy::parse("kvzip" + options)), (KeptSlots{{0, 1, 2}, {3}}));
  EXPECT_EQ(layer.kept_by(Policy::parse("kvzip+pool" + options)), (KeptSlots{{0, 1, 2}, {3}}));
  EXPECT_EQ(layer.kept_by(Policy::parse("kvzip+uniform" + options)), (KeptSlots{{0, 1}, {2, 3}}));
  EXPECT_EQ(Policy::parse("kvzip+pool" + options).spec(), "kvzip" + options);
  EXPECT_EQ(Policy::parse("kvzip+uniform" + options).spec(), "kvzip+uniform" + options);
  EXPECT_EQ(Policy::parse("kvzip+pyramid" + options).spec(), "kvzip+pyramid" + options);
  EXPECT_EQ(Policy::parse("kvzip+roles" + options).sharing(), Sharing::kAll);
  EXPECT_EQ(Policy::parse("knorm+uniform" + options).spec(), "knorm" + options);
}

TEST(Kvzip, SaysWhatItNeeds) {
  const Needs needs = Policy::parse("kvzip:budget=9,replay_chunk=512,weigh=output").needs();
  EXPECT_EQ(needs.replay, (Replay{.chunk = 512, .weighs_outputs = true}));
  EXPECT_TRUE(needs.static_scores());
  EXPECT_EQ(needs.score_kind(), cache::StaticScore::kReplay);
  EXPECT_EQ(describe_needs(find_method("kvzip")),
            std::vector<std::string>{"replay in parts of 2048"});
  EXPECT_TRUE(Policy::parse("kvzip+uniform:budget=9").needs_all_layers());
}

}  // namespace
}  // namespace winnow::policy
