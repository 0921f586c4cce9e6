#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policy/policy.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a layer of heads with the given squared key norms keeps.
KeptSlots kept(const std::string& options, const std::vector<std::vector<float>>& norms) {
  std::vector<TinyHead> heads;
  for (const std::vector<float>& head : norms) {
    heads.push_back(TinyHead::with_norms(head));
  }
  return TinyLayer(heads).kept_by(Policy::parse("knorm+adakv:n_sink=0,n_recent=0," + options));
}

// The norms of pseudo-random keys, [2, 24, 8] numbers of a linear congruential generator on [-1, 1).
std::vector<std::vector<float>> fixture_norms() {
  uint32_t state = 1;
  std::vector<std::vector<float>> norms(2, std::vector<float>(24));
  for (std::vector<float>& head : norms) {
    for (float& norm : head) {
      for (int c = 0; c < 8; ++c) {
        state = 1664525U * state + 1013904223U;
        const auto element = static_cast<float>(state / 4294967296.0 * 2 - 1);
        norm += element * element;
      }
    }
  }
  return norms;
}

TEST(Adakv, KeepsWhatKvpressKeeps) {
  EXPECT_EQ(kept("budget=6", fixture_norms()),
            (KeptSlots{{0, 10, 12, 13, 17, 19, 21}, {0, 5, 6, 18, 19}}));
}

TEST(Adakv, TheBestRowsOfAllHeadsStay) {
  EXPECT_EQ(kept("budget=3,budget_floor=0", {{1, 2, 3, 4, 5, 60}, {10, 20, 30, 40, 50, 6}}),
            (KeptSlots{{0, 1, 2, 3, 4}, {5}}));
}

TEST(Adakv, EveryHeadKeepsItsFloor) {
  EXPECT_EQ(
      kept("budget=4,budget_floor=0.5", {{1, 2, 3, 4, 5, 6, 7}, {70, 60, 50, 40, 30, 20, 10}}),
      (KeptSlots{{0, 1, 2, 3, 4, 5}, {5, 6}}));
  // Rows below the threshold that a floor holds do not count twice.
  EXPECT_EQ(kept("budget=4,budget_floor=1", {{1, 2, 3, 4, 5, 6, 7}, {70, 60, 50, 40, 30, 20, 10}}),
            (KeptSlots{{0, 1, 2, 3}, {3, 4, 5, 6}}));
}

TEST(Adakv, ProtectedRowsAndOneMoreStayInEveryHead) {
  EXPECT_EQ(TinyLayer({TinyHead::with_norms({1, 2, 3, 4, 5, 6, 7, 8}),
                       TinyHead::with_norms({80, 70, 60, 50, 40, 30, 20, 10})})
                .kept_by(Policy::parse("knorm+adakv:budget=5,n_sink=1,n_recent=2")),
            (KeptSlots{{0, 1, 2, 3, 6, 7}, {0, 5, 6, 7}}));
}

TEST(Adakv, TiesGoToTheFirstHeadThenTheLowestPosition) {
  EXPECT_EQ(kept("budget=3,budget_floor=0", {{2, 2, 2, 2}, {2, 1, 2, 2}}),
            (KeptSlots{{0, 1, 2, 3}, {0, 1}}));
  EXPECT_EQ(kept("budget=2,budget_floor=0", {{1, 0.0F, 1}, {1, -0.0F, 0.0F}}),
            (KeptSlots{{0, 1}, {1, 2}}));
}

TEST(Adakv, NanIsTheLowestAndInfinitiesStandInTheirPlace) {
  // Five scores are numbers; of the three that are none, the first head's first takes the sixth place.
  EXPECT_EQ(kept("budget=3,budget_floor=0", {{kNan, 1, kNan, 2}, {kInfinity, 3, kNan, kInfinity}}),
            (KeptSlots{{0, 1, 3}, {0, 1, 3}}));
}

TEST(Adakv, HiddenRowsAreNotCounted) {
  TinyHead first = TinyHead::with_norms({1, 2, 3, 4});
  first.hidden = {1, 0, 0, 0};
  const TinyHead second = TinyHead::with_norms({9, 8, 7, 6});
  EXPECT_EQ(TinyLayer({first, second})
                .kept_by(Policy::parse("knorm+adakv:budget=3,n_sink=0,n_recent=0,budget_floor=0")),
            (KeptSlots{{1, 2, 3}, {1, 2, 3}}));
}

TEST(Adakv, AHeadWithFewRowsLeavesItsPartToTheOthers) {
  EXPECT_EQ(kept("budget=4", {{7, 8}, {1, 2, 3, 4, 5, 6, 9}}),
            (KeptSlots{{0, 1}, {0, 1, 2, 3, 4, 5}}));
  EXPECT_EQ(kept("budget=5", {{7, 8}, {1, 2, 3, 4, 5, 6, 9}}), KeptSlots{});
}

}  // namespace
}  // namespace winnow::policy
