// Random numbers must not change: results name their seeds.

#include "base/random.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

// The first outputs of SplitMix64 with seed 0; its state grows by 0x9e3779b97f4a7c15 from one to the next.
TEST(Random, IsTheFinaliserOfSplitMix64) {
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafULL);
  EXPECT_EQ(splitmix64(0x9e3779b97f4a7c15ULL), 0x6e789e6aa1b965f4ULL);
}

}  // namespace
}  // namespace winnow
