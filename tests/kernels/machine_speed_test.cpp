// The loops whose speed is measured do what they are said to do.

#include "kernels/machine_speed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "base/random.h"

namespace winnow::kernels {
namespace {

TEST(MachineSpeed, EveryWordIsRead) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{31}, size_t{64}, size_t{1000}}) {
    std::vector<uint64_t> words;
    for (size_t i = 0; i < n; ++i) {
      words.push_back(splitmix64(i));
    }
    EXPECT_EQ(sum_words(words), std::accumulate(words.begin(), words.end(), uint64_t{0})) << n;
  }
}

TEST(MachineSpeed, OperationsGrowWithRounds) {
  float result = 0;
  const double once = multiply_add(1, result);
  EXPECT_GE(once, 24.0);  // twelve multiply-adds of at least one number
  EXPECT_EQ(multiply_add(100, result), 100 * once);
  EXPECT_TRUE(std::isfinite(result));
  // x = 0.999 x + 0.001 goes to 1, in every lane of every chain.
  const double all = multiply_add(100000, result) / 2 / 100000;
  EXPECT_NEAR(result, all, 0.01 * all);
}

TEST(MachineSpeed, IsMeasured) {
  EXPECT_GT(measure_multiply_add_speed(1), 1e6);
  EXPECT_GT(measure_read_speed(1), 1e6);
  EXPECT_STRNE(instruction_set(), "");
}

}  // namespace
}  // namespace winnow::kernels
