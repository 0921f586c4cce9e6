// A table reads each of its names and spells each of its values; other names are refused with the list.

#include "base/name_table.h"

#include <gtest/gtest.h>

#include "support/error_of.h"

namespace winnow {
namespace {

enum class Fruit { kApple, kPear, kQuince };

constexpr NameTable<Fruit, 2> kFruits{"fruit", {{Fruit::kPear, "pear"}, {Fruit::kApple, "apple"}}};

TEST(NameTable, ReadsAndSpells) {
  EXPECT_EQ(kFruits.parse("apple"), Fruit::kApple);
  EXPECT_EQ(kFruits.find("pear"), Fruit::kPear);
  EXPECT_STREQ(kFruits.name(Fruit::kPear), "pear");
}

TEST(NameTableDeathTest, RefusesWhatItDoesNotHold) {
  EXPECT_EQ(kFruits.find("Apple"), std::nullopt);
  EXPECT_EQ(kFruits.find(""), std::nullopt);
  EXPECT_EQ(test::error_of(ErrorCode::kInvalidArgument, [] { kFruits.parse("paer"); }),
            "unknown fruit 'paer' (did you mean 'pear'? allowed: pear, apple)");
  EXPECT_DEATH(kFruits.name(Fruit::kQuince), "internal fault");
}

}  // namespace
}  // namespace winnow
