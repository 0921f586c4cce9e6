// capkv: against plain elimination, and against what kvpress scores.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/plain_solve.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

constexpr int kSink = 4;

TEST(Capkv, ScoresWhatKvpressScores) {
  double sum = 0;
  float greatest = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<float> scores = golden::Layer().scores_by(make_capkv, {}, kSink, kv_head);
    EXPECT_NEAR(kv_head == 0 ? scores[5] : scores[7], kv_head == 0 ? 0.064000 : 0.389913, 2e-6);
    sum = std::accumulate(scores.begin() + kSink, scores.end(), sum);
    greatest = std::max(greatest, *std::max_element(scores.begin() + kSink, scores.end()));
  }
  // There sinks have 1 + the greatest of all others.
  EXPECT_NEAR(sum + golden::kKvHeads * kSink * (1 + static_cast<double>(greatest)), 19.402293,
              1e-5);
}

TEST(Capkv, ScoresAreTheEquationsValues) {
  for (const int dim : {8, 36, 64}) {
    for (const int group : {1, 3}) {
      constexpr int kRows = 60;
      constexpr int kFuture = 5;
      const auto size = static_cast<size_t>(dim);
      const TinyHead head = TinyHead::random(kRows, static_cast<unsigned>(dim), dim);
      std::mt19937 random(9);
      const std::vector<float> plain =
          test::random_floats(random, static_cast<size_t>(kRows * group) * size);
      TinyLayer layer({head});
      layer.set_queries(rotated_by_halves(plain, group, dim), group, 1, 0.1F);
      const std::vector<float> scores =
          layer.scores_by(make_capkv, {{"n_future", "5"}, {"sharpness", "3"}}, kSink, 0);
      std::vector<double> expected(kRows);
      for (int h = 0; h < group; ++h) {
        std::vector<double> mean(size);  // turned to each of the next positions
        for (int pos = kRows; pos < kRows + kFuture; ++pos) {
          for (int t = kernels::kUncountedQueries; t < kRows; ++t) {
            for (size_t c = 0; c < size / 2; ++c) {
              const double angle = pos * std::pow(10000.0, -2.0 * static_cast<double>(c) / dim);
              const size_t at = static_cast<size_t>(t * group + h) * size + c;
              const auto a = static_cast<double>(plain[at]);
              const auto b = static_cast<double>(plain[at + size / 2]);
              mean[c] += a * std::cos(angle) - b * std::sin(angle);
              mean[c + size / 2] += a * std::sin(angle) + b * std::cos(angle);
            }
          }
        }
        const double length =
            std::sqrt(std::inner_product(mean.begin(), mean.end(), mean.begin(), 0.0));
        std::vector<double> weights;
        for (size_t j = kSink; j < kRows; ++j) {
          const float* const key = &head.keys[j * size];
          const double of_key = std::sqrt(std::inner_product(key, key + dim, key, 0.0));
          weights.push_back(3 * std::inner_product(mean.begin(), mean.end(), key, 0.0) / length /
                            of_key);
        }
        const double greatest = *std::max_element(weights.begin(), weights.end());
        std::vector<double> matrix(size * size);
        for (size_t j = 0; j < weights.size(); ++j) {
          weights[j] = std::exp(weights[j] - greatest);
          const float* const value = &head.values[(j + kSink) * size];
          for (size_t a = 0; a < size; ++a) {
            for (size_t b = 0; b < size; ++b) {
              matrix[a * size + b] += (weights[j] + 1e-6) * static_cast<double>(value[a]) *
                                      static_cast<double>(value[b]);
            }
          }
        }
        for (size_t a = 0; a < size; ++a) {
          matrix[a * size + a] += 1;
        }
        for (size_t j = 0; j < weights.size(); ++j) {
          const float* const value = &head.values[(j + kSink) * size];
          const std::vector<double> solved = plain_solve(matrix, {value, value + dim});
          expected[j + kSink] +=
              weights[j] * std::inner_product(solved.begin(), solved.end(), value, 0.0) / group;
        }
      }
      for (size_t j = 0; j < kRows; ++j) {
        if (j < kSink) {
          EXPECT_TRUE(std::isinf(scores[j]));
        } else {
          ASSERT_NEAR(scores[j], expected[j], 1e-5) << dim << ", " << group << ", row " << j;
        }
      }
    }
  }
}

TEST(Capkv, ARowThatIsNoNumberIsWorthLeastAndChangesNoOther) {
  TinyHead head = TinyHead::random(50, 6);
  head.keys[20 * 8 + 3] = std::numeric_limits<float>::quiet_NaN();
  head.values[21 * 8] = std::numeric_limits<float>::infinity();
  TinyHead hidden = head;
  hidden.hidden.assign(50, cache::kVisible);
  hidden.hidden[20] = hidden.hidden[21] = cache::kHidden;
  const std::vector<float> scores = TinyLayer({head}).scores_by(make_capkv, {}, kSink, 0);
  const std::vector<float> expected = TinyLayer({hidden}).scores_by(make_capkv, {}, kSink, 0);
  for (size_t row = 0; row < scores.size(); ++row) {
    EXPECT_TRUE(row == 20 || row == 21 ? std::isnan(scores[row]) : scores[row] == expected[row])
        << row << ": " << scores[row] << ", " << expected[row];
  }
}

}  // namespace
}  // namespace winnow::policy
