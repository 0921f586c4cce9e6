// The likeliest token, and logits that are not numbers.

#include "engine/sampling.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "base/error.h"

namespace winnow {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Sampling, WithoutTemperatureTakesTheLowestIdAmongTheLikeliest) {
  engine::Sampler greedy({.temperature = 0});
  EXPECT_EQ(greedy.sample(std::array{1.0F, 3.0F, 3.0F, 2.0F}), 1);
  EXPECT_EQ(greedy.sample(std::array{kNan, -3.0F, kNan, -2.0F}), 3);
  EXPECT_EQ(greedy.sample(std::array{kNan, -kInfinity}), 1);
}

TEST(Sampling, NeverTakesWhatIsNoNumber) {
  for (const float temperature : {1e-40F, 1.0F, 100.0F}) {
    engine::Sampler sampler({.temperature = temperature, .top_k = 0, .min_p = 0, .seed = 1});
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(sampler.sample(std::array{kNan, 1.0F, kNan}), 1);
    }
  }
}

TEST(Sampling, RefusesLogitsThatAreNoNumbers) {
  engine::Sampler greedy({.temperature = 0});
  try {
    greedy.sample(std::array{kNan, kNan});
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kBadData);
  }
}

}  // namespace
}  // namespace winnow
