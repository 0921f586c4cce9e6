#include "policy/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>

#include "oracle/select_oracle.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Select, KeepsTheBestInAscendingOrder) {
  EXPECT_EQ(select(std::vector<float>{1, 5, 2, 4, 3}, 3, {}), (Slots{1, 3, 4}));
}

TEST(Select, TiesKeepTheLowerSlot) {
  EXPECT_EQ(select(std::vector<float>{1, 2, 2, 2, 1}, 2, {}), (Slots{1, 2}));
}

TEST(Select, NegativeZeroEqualsZero) {
  EXPECT_EQ(select(std::vector<float>{-0.0F, 0.0F, -0.0F, 0.0F}, 2, {}), (Slots{0, 1}));
}

TEST(Select, NanIsBelowMinusInfinity) {
  EXPECT_EQ(select(std::vector<float>{kNan, -kInfinity, -kNan, kInfinity}, 2, {}), (Slots{1, 3}));
}

TEST(Select, ProtectedSlotsNeedNoWorth) {
  EXPECT_EQ(select(std::vector<float>{kNan, 9, 8, 7, -kInfinity}, 3, {.n_first = 1, .n_last = 1}),
            (Slots{0, 1, 4}));
}

TEST(Select, ProtectionCountsWithinTheBudget) {
  EXPECT_EQ(select(std::vector<float>{0, 0, 9, 0, 0}, 4, {.n_first = 2, .n_last = 2}),
            (Slots{0, 1, 3, 4}));
}

TEST(Select, EnoughRoomKeepsEverything) {
  EXPECT_EQ(select(std::vector<float>{1, kNan, 2}, 3, {}), (Slots{0, 1, 2}));
  EXPECT_EQ(select(std::vector<float>{1, kNan, 2}, 99, {.n_first = 9, .n_last = 9}),
            (Slots{0, 1, 2}));
}

TEST(Select, NothingFromNothing) {
  EXPECT_EQ(select({}, 0, {}), Slots{});
  EXPECT_EQ(select({}, 5, {}), Slots{});
  EXPECT_EQ(select(std::vector<float>{1, 2}, 0, {}), Slots{});
}

TEST(SelectDeathTest, ProtectingMoreThanIsKeptIsAFault) {
  EXPECT_DEATH(select(std::vector<float>(8, 0.0F), 3, {.n_first = 2, .n_last = 2}),
               "internal fault");
}

TEST(Select, CountsNanWhereRowsCompete) {
  Scratch scratch;
  std::vector<int> kept;
  const std::vector<float> scores{kNan, 1, -kNan, 2, kNan, kNan};
  EXPECT_EQ(select(scores, 4, {.n_first = 1, .n_last = 1}, scratch, kept), 2);
  EXPECT_EQ(kept, (Slots{0, 1, 3, 5}));
  EXPECT_EQ(select(scores, 6, {}, scratch, kept), 0);  // nothing competes
  EXPECT_EQ(select(scores, 2, {.n_first = 1, .n_last = 1}, scratch, kept), 0);
  EXPECT_EQ(kept, (Slots{0, 5}));
}

struct Kind {
  std::string name;
  std::function<float(std::mt19937&, int slot)> draw;
};

float draw_normal(std::mt19937& random, int /*slot*/) {
  return std::normal_distribution<float>()(random);
}

int draw_below(std::mt19937& random, int n) {
  return std::uniform_int_distribution<int>(0, n - 1)(random);
}

float draw_special(std::mt19937& random, int /*slot*/) {
  constexpr float kDenormal = std::numeric_limits<float>::denorm_min();
  constexpr float kSpecial[] = {0.0F,  -0.0F, kInfinity, -kInfinity, kNan,
                                -kNan, 1.0F,  kDenormal, -kDenormal};
  return kSpecial[draw_below(random, std::size(kSpecial))];
}

const Kind kKinds[] = {
    {"normal", draw_normal},
    {"drifting",
     [](auto& random, int slot) {
       return draw_normal(random, slot) + 0.01F * static_cast<float>(slot);
     }},
    {"tied", [](auto& random, int slot) { return std::round(4 * draw_normal(random, slot)) / 4; }},
    {"equal", [](auto& /*random*/, int /*slot*/) { return -3.5F; }},
    {"zeros", [](auto& random, int /*slot*/) { return draw_below(random, 2) == 0 ? 0.0F : -0.0F; }},
    {"two values",
     [](auto& random, int /*slot*/) { return draw_below(random, 2) == 0 ? 1.0F : 2.0F; }},
    {"NaN only", [](auto& /*random*/, int /*slot*/) { return kNan; }},
    {"special", draw_special},
    {"some NaN",
     [](auto& random, int slot) {
       return draw_below(random, 9) == 0 ? kNan : draw_normal(random, slot);
     }},
    {"periodic", [](auto& /*random*/,
                    int slot) { return slot % 32 == 0 ? 100.0F : static_cast<float>(slot % 3); }},
    {"rising", [](auto& /*random*/, int slot) { return static_cast<float>(slot); }},
    {"falling", [](auto& /*random*/, int slot) { return -static_cast<float>(slot); }},
    {"denormal",
     [](auto& random, int /*slot*/) {
       return static_cast<float>(draw_below(random, 9) - 4) *
              std::numeric_limits<float>::denorm_min();
     }},
    {"neighbours",
     [](auto& random, int /*slot*/) {
       return std::nextafter(1.0F, draw_below(random, 2) == 0 ? 0.0F : 2.0F);
     }},
};

TEST(Select, EqualsAStableSortOnAnyInput) {
  std::mt19937 random(1);
  for (const Kind& kind : kKinds) {
    for (int trial = 0; trial < 500; ++trial) {
      const int n = trial % 50 == 0 ? 3000 : draw_below(random, 130);
      std::vector<float> scores(static_cast<size_t>(n));
      for (int slot = 0; slot < n; ++slot) {
        scores[static_cast<size_t>(slot)] = kind.draw(random, slot);
      }
      const int n_keep = draw_below(random, n + 3);
      const int n_first = draw_below(random, std::min(n_keep, n) + 1);
      const int n_last = draw_below(random, std::min(n_keep, n) - n_first + 1);
      ASSERT_EQ(select(scores, n_keep, {n_first, n_last}),
                oracle::select(scores, n_keep, n_first, n_last))
          << kind.name << ", n " << n << ", n_keep " << n_keep << ", n_first " << n_first
          << ", n_last " << n_last;
    }
  }
}

}  // namespace
}  // namespace winnow::policy
