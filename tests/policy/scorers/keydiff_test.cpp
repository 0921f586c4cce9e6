#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

std::vector<float> scores_of(const TinyHead& head) {
  return TinyLayer({head}).scores_by(make_keydiff, {}, 0, 0);
}

TinyHead with_keys(std::vector<float> keys) {
  const std::vector<float> values(keys.size());
  return TinyHead::with_rows(2, std::move(keys), values);
}

// -cos(k, mean of k / |k|), in double.
std::vector<double> plain_scores(const TinyHead& head) {
  const auto dim = static_cast<size_t>(head.head_dim);
  const size_t n = head.positions.size();
  const auto norm = [](const double* x, size_t size) {
    return std::sqrt(std::inner_product(x, x + size, x, 0.0));
  };
  const std::vector<double> keys(head.keys.begin(), head.keys.end());
  std::vector<double> anchor(dim);
  for (size_t i = 0; i < n; ++i) {
    for (size_t c = 0; c < dim; ++c) {
      anchor[c] += keys[i * dim + c] / norm(&keys[i * dim], dim) / static_cast<double>(n);
    }
  }
  std::vector<double> scores(n);
  for (size_t i = 0; i < n; ++i) {
    const double dot = std::inner_product(anchor.begin(), anchor.end(), &keys[i * dim], 0.0);
    scores[i] = -dot / norm(&keys[i * dim], dim) / norm(anchor.data(), dim);
  }
  return scores;
}

TEST(KeyDiff, ScoresAreTheEquationsValues) {
  for (const int dim : {2, 8, 33, 64, 128}) {
    for (const int n : {1, 7, 64, 65, 1000}) {
      const TinyHead head = TinyHead::random(n, static_cast<unsigned>(dim + n), dim);
      const std::vector<float> scores = scores_of(head);
      const std::vector<double> expected = plain_scores(head);
      for (size_t i = 0; i < scores.size(); ++i) {
        ASSERT_NEAR(scores[i], expected[i], 2e-6) << dim << ", " << n << ", slot " << i;
      }
    }
  }
}

TEST(KeyDiff, ScoresWhatKvpressScores) {
  double sum = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<float> scores =
        TinyLayer(golden::heads()).scores_by(make_keydiff, {}, 0, kv_head);
    EXPECT_NEAR(kv_head == 0 ? scores[5] : scores[7], kv_head == 0 ? -0.866069 : -0.250227, 1e-6);
    sum += std::accumulate(scores.begin(), scores.end(), 0.0);
  }
  EXPECT_NEAR(sum, -8.542783, 1e-5);
}

TEST(KeyDiff, KeepsTheKeysThatPointElsewhere) {
  const TinyHead head = with_keys({1, 0, 5, 0, 0, 3, 2, 0, -1, 0, 9, 1});
  EXPECT_EQ(TinyLayer({head}).kept_by(Policy::parse("keydiff:budget=2,n_sink=0,n_recent=0")),
            (KeptSlots{{2, 4}}));
}

TEST(KeyDiff, LengthsChangeNothing) {
  const std::vector<float> scores = scores_of(with_keys({1, 0, 0, 2, -4, 4, 1, 1}));
  EXPECT_EQ(scores_of(with_keys({8, 0, 0, 0.5F, -1, 1, 64, 64})), scores);
}

TEST(KeyDiff, AKeyWithoutDirectionScoresZeroAndLeavesTheOthersAlone) {
  const std::vector<float> without = scores_of(with_keys({1, 0, 0, 2, 1, 1}));
  const std::vector<float> with = scores_of(with_keys({1, 0, 0, 0, 0, 2, 1, 1}));
  EXPECT_EQ(with[1], 0.0F);
  EXPECT_EQ((std::vector<float>{with[0], with[2], with[3]}), without);
  for (const float score : scores_of(with_keys({1, 0, -1, 0}))) {  // an anchor without one
    EXPECT_EQ(score, 0.0F);
  }
}

TEST(KeyDiff, KeysThatAreNotFiniteAreWorthLeastAndLeaveTheOthersAlone) {
  const std::vector<float> without = scores_of(with_keys({1, 0, 0, 2, 1, 1}));
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), 1e30F}) {
    const std::vector<float> with = scores_of(with_keys({1, 0, bad, 1, 0, 2, 1, 1}));
    EXPECT_TRUE(std::isnan(with[1])) << bad;
    EXPECT_EQ((std::vector<float>{with[0], with[2], with[3]}), without) << bad;
  }
}

}  // namespace
}  // namespace winnow::policy
