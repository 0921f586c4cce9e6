// A slip finds its name; another word finds none.

#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

TEST(NearestName, PrefersTheSmallestDistanceAndGivesUpOnOtherWords) {
  constexpr std::string_view kNames[] = {"budget", "n_recent", "n_sink"};
  EXPECT_EQ(nearest_name("n_sinks", kNames), "n_sink");
  EXPECT_EQ(nearest_name("recent", kNames), "n_recent");
  EXPECT_EQ(nearest_name("", kNames), "");
  EXPECT_EQ(nearest_name("temperature", kNames), "");
}

}  // namespace
}  // namespace winnow
