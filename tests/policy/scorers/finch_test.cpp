// finch: against plain loops.

#include <gtest/gtest.h>

#include <cmath>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

TEST(Finch, ScoresAreTheEquationsValues) {
  for (const int group : {1, 3}) {
    for (const int window : {1, 5, 40}) {
      for (const bool normalize : {true, false}) {
        constexpr int kRows = 60;
        constexpr int kDim = 16;
        const TinyHead head = TinyHead::random(kRows, 3, kDim);
        std::mt19937 random(4);
        const std::vector<float> q =
            test::random_floats(random, static_cast<size_t>(kRows * group * kDim));
        TinyLayer layer({head});
        layer.set_queries(q, group, window, 0.25F);
        const std::vector<float> scores = layer.scores_by(
            make_finch,
            {{"obs_window", std::to_string(window)}, {"normalize", normalize ? "true" : "false"}},
            0, 0);
        std::vector<double> expected(kRows);
        for (int t = kRows - window; t < kRows; ++t) {
          for (int h = 0; h < group; ++h) {
            const float* const query = &q[static_cast<size_t>((t * group + h) * kDim)];
            std::vector<double> weights;
            double sum = 0;
            for (int j = 0; j <= t; ++j) {
              double product = 0;
              for (int c = 0; c < kDim; ++c) {
                product += static_cast<double>(query[c]) *
                           static_cast<double>(head.keys[static_cast<size_t>(j * kDim + c)]);
              }
              weights.push_back(std::exp(0.25 * product));
              sum += weights.back();
            }
            for (size_t j = 0; j < weights.size(); ++j) {
              expected[j] += weights[j] / sum * (normalize ? t : 1) / window / group;
            }
          }
        }
        for (size_t j = 0; j < kRows; ++j) {
          if (static_cast<int>(j) >= kRows - window) {
            EXPECT_TRUE(std::isinf(scores[j]));
          } else {
            ASSERT_NEAR(scores[j], expected[j], 1e-4) << group << ", " << window << ", row " << j;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::policy
