// cur: against plain loops, and against what kvpress scores.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

TEST(Cur, ScoresWhatKvpressScores) {
  const TinyLayer layer(golden::heads());
  const std::vector<float> first = layer.scores_by(make_cur, {}, 4, 0);
  const std::vector<float> second = layer.scores_by(make_cur, {}, 4, 1);
  EXPECT_NEAR(first[5], 0.035187, 1e-6);
  EXPECT_NEAR(second[7], 0.015041, 1e-6);
  const double sum = std::accumulate(first.begin(), first.end(), 0.0);
  EXPECT_NEAR(std::accumulate(second.begin(), second.end(), sum), 9.878474, 1e-5);
}

double square(const std::vector<float>& rows, size_t row, size_t dim) {
  double sum = 0;
  for (size_t i = row * dim; i < (row + 1) * dim; ++i) {
    sum += static_cast<double>(rows[i]) * static_cast<double>(rows[i]);
  }
  return sum;
}

TEST(Cur, ScoresAreTheEquationsValues) {
  constexpr size_t kRows = 71;
  for (const size_t dim : {2U, 33U, 64U}) {
    for (const size_t window : {1U, 7U, 16U, 100U}) {
      for (const std::string of : {"product", "key", "value", "mean"}) {
        const TinyHead head = TinyHead::random(static_cast<int>(kRows), static_cast<unsigned>(dim),
                                               static_cast<int>(dim));
        const std::vector<float> scores = TinyLayer({head}).scores_by(
            make_cur, {{"cur_window", std::to_string(window)}, {"cur_of", of}}, 3, 0);
        std::vector<double> expected;
        for (size_t j = 0; j < kRows; ++j) {
          const size_t begin = j / window * window;
          double keys = 0;
          double values = 0;
          for (size_t i = begin; i < std::min(kRows, begin + window); ++i) {
            keys += square(head.keys, i, dim);
            values += square(head.values, i, dim);
          }
          const double key = square(head.keys, j, dim) / keys;
          const double value = square(head.values, j, dim) / values;
          expected.push_back(of == "key"     ? key
                             : of == "value" ? value
                             : of == "mean"  ? (key + value) / 2
                                             : key * value);
        }
        const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
        for (size_t j = 0; j < kRows; ++j) {
          ASSERT_NEAR(scores[j], j < 3 ? 1.0 : expected[j] / sum, 1e-6)
              << dim << ", " << window << ", " << of << ", row " << j;
        }
      }
    }
  }
}

TEST(Cur, ARowThatIsNoNumberHasNoPartInTheOthers) {
  const TinyHead head = TinyHead::random(40, 3);
  TinyHead damaged = head;
  const auto dim = static_cast<size_t>(head.head_dim);
  damaged.values[17 * dim] = std::numeric_limits<float>::quiet_NaN();
  TinyHead less = head;  // a row of length 0 in its place
  std::fill_n(less.values.begin() + static_cast<std::ptrdiff_t>(17 * dim), dim, 0.0F);
  const auto scores = [](const TinyHead& of) {
    return TinyLayer({of}).scores_by(make_cur, {{"cur_of", "value"}}, 0, 0);
  };
  const std::vector<float> with_nan = scores(damaged);
  const std::vector<float> expected = scores(less);
  for (size_t j = 0; j < expected.size(); ++j) {
    EXPECT_TRUE(j == 17 ? std::isnan(with_nan[j]) : with_nan[j] == expected[j]) << j;
  }
}

}  // namespace
}  // namespace winnow::policy
