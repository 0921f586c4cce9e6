// Draws against those of numpy 2.4, printed by the lines that stand beside them.

#include "eval/numpy_random.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace winnow::eval {
namespace {

// r = np.random.default_rng(7); r.random(), r.standard_normal(3), r.choice(10, size=4, replace=False), r.random()
TEST(NumpyRandom, DrawsWhatNumpyDraws) {
  NumpyRandom random(7);
  EXPECT_DOUBLE_EQ(random.random(), 0.625095466604667);
  EXPECT_NEAR(random.standard_normal(), 0.2987455375084699, 1e-13);
  EXPECT_NEAR(random.standard_normal(), -0.2741378553622176, 1e-13);
  EXPECT_NEAR(random.standard_normal(), -0.8905918387572742, 1e-13);
  EXPECT_EQ(random.choice(10, 4), (std::vector<int64_t>{2, 8, 0, 9}));
  EXPECT_DOUBLE_EQ(random.random(), 0.7970694287520462);
}

// r = np.random.default_rng(12345678901234); x = r.standard_normal(1000000); x[-1], x.max(), r.choice(252, size=60, replace=False)[-1]
TEST(NumpyRandom, StaysInStepThroughTheTailOfTheZiggurat) {
  NumpyRandom random(12345678901234ULL);
  double largest = 0;
  double last = 0;
  for (int i = 0; i < 1000000; ++i) {
    last = random.standard_normal();
    largest = std::max(largest, last);
  }
  EXPECT_NEAR(last, 1.029100543979675, 1e-13);
  EXPECT_NEAR(largest, 4.620430771036495, 1e-13);
  EXPECT_EQ(random.choice(252, 60).back(), 204);
}

TEST(NumpyRandom, ChoosesDifferentNumbers) {
  NumpyRandom random(1);
  EXPECT_TRUE(random.choice(0, 0).empty());
  for (int k = 0; k <= 30; ++k) {
    std::vector<int64_t> chosen = random.choice(30, k);
    EXPECT_EQ(std::ssize(chosen), k);
    std::ranges::sort(chosen);
    EXPECT_EQ(std::ranges::adjacent_find(chosen), chosen.end());
    EXPECT_TRUE(chosen.empty() || (chosen.front() >= 0 && chosen.back() < 30));
  }
}

}  // namespace
}  // namespace winnow::eval
