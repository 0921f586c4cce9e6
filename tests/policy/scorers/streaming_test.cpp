#include <gtest/gtest.h>

#include <numeric>

#include "policy/policy.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

Slots kept(const std::string& spec, const std::vector<int32_t>& positions) {
  const Policy policy = Policy::parse(spec);
  const TinyLayer layer({TinyHead{.positions = positions, .norms = {}, .hidden = {}}});
  return layer.kept_by(policy).at(0);
}

TEST(Streaming, KeepsTheSinksAndTheLastRows) {
  EXPECT_EQ(kept("streaming:budget=6,n_sink=2", {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
            (Slots{0, 1, 6, 7, 8, 9}));
}

TEST(Streaming, KeepsWhatKvpressKeeps) {
  std::vector<int32_t> positions(24);
  std::iota(positions.begin(), positions.end(), 0);
  EXPECT_EQ(kept("streaming:budget=12,n_sink=4", positions),
            (Slots{0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23}));
}

TEST(Streaming, WithoutSinksIsATrailingWindow) {
  EXPECT_EQ(kept("streaming:budget=3,n_sink=0", {0, 1, 2, 3, 4, 5}), (Slots{3, 4, 5}));
}

TEST(Streaming, TheRecentWindowChangesNothing) {
  const std::vector<int32_t> positions{0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  EXPECT_EQ(kept("streaming:budget=6,n_recent=0", positions),
            kept("streaming:budget=6,n_recent=1", positions));
}

TEST(Streaming, TellsPositionsApartThatAFloatCannot) {
  const int32_t far = 1 << 30;
  EXPECT_EQ(
      kept("streaming:budget=3,n_sink=0,n_recent=0", {far, far + 1, far + 2, far + 3, far + 4}),
      (Slots{2, 3, 4}));
}

}  // namespace
}  // namespace winnow::policy
