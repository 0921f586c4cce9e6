// leverage: against plain elimination on the same directions.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "policy/methods.h"
#include "policy/plain_solve.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

// Rows whose keys are given before rotation, each rotated to its position.
TinyHead rotated(TinyHead head) {
  head.keys = rotated_by_halves(head.keys, 1, head.head_dim);
  return head;
}

// Eq. (1) and (2) of keys before rotation [n, dim], with `n_directions` directions of the layer.
std::vector<double> plain_leverage(const std::vector<float>& keys, size_t dim, size_t n_directions,
                                   int seed, int layer) {
  const size_t n = keys.size() / dim;
  const uint64_t of_layer = hash_with(splitmix64(static_cast<uint64_t>(seed)), layer);
  std::vector<double> y(n * n_directions);
  for (size_t c = 0; c < n_directions; ++c) {
    double mean = 0;
    for (size_t j = 0; j < n; ++j) {
      for (size_t i = 0; i < dim; ++i) {
        const uint64_t hash =
            hash_with(hash_with(of_layer, static_cast<int>(c)), static_cast<int>(i));
        y[j * n_directions + c] += (std::popcount(hash) - 32) / 4.0 *
                                   static_cast<double>(keys[j * dim + i]) /
                                   std::sqrt(static_cast<double>(n_directions));
      }
      mean += y[j * n_directions + c] / static_cast<double>(n);
    }
    for (size_t j = 0; j < n; ++j) {
      y[j * n_directions + c] -= mean;
    }
  }
  std::vector<double> gram(n_directions * n_directions);
  for (size_t a = 0; a < n_directions; ++a) {
    for (size_t b = 0; b < n_directions; ++b) {
      gram[a * n_directions + b] = a == b ? 0.01 : 0.0;
      for (size_t j = 0; j < n; ++j) {
        gram[a * n_directions + b] += y[j * n_directions + a] * y[j * n_directions + b];
      }
    }
  }
  std::vector<double> scores;
  for (size_t j = 0; j < n; ++j) {
    const std::vector<double> row(y.begin() + static_cast<std::ptrdiff_t>(j * n_directions),
                                  y.begin() + static_cast<std::ptrdiff_t>((j + 1) * n_directions));
    const std::vector<double> solved = plain_solve(gram, row);
    scores.push_back(std::inner_product(row.begin(), row.end(), solved.begin(), 0.0));
  }
  return scores;
}

TEST(Leverage, ScoresAreTheEquationsValues) {
  for (const int dim : {8, 36, 64}) {
    for (const size_t n_directions : {1U, 5U, 48U}) {
      for (const int n_rows : {1, 20, 130}) {
        constexpr int kLayer = 3;
        const TinyHead head = TinyHead::random(n_rows, static_cast<unsigned>(dim), dim);
        const std::vector<double> expected =
            plain_leverage(head.keys, static_cast<size_t>(dim), n_directions, 7, kLayer);
        const std::vector<float> scores =
            TinyLayer({rotated(head)}, kLayer)
                .scores_by(make_leverage, {{"sketch", std::to_string(n_directions)}, {"seed", "7"}},
                           0, 0);
        for (size_t j = 0; j < expected.size(); ++j) {
          ASSERT_NEAR(scores[j], expected[j], 1e-4)
              << dim << ", " << n_directions << ", " << n_rows << ", row " << j;
        }
      }
    }
  }
}

// The leverages of a matrix sum up to its rank, less what the ridge takes.
TEST(Leverage, ScoresSumUpToTheNumberOfDirections) {
  const TinyLayer layer({TinyHead::random(500, 2, 64)});
  const std::vector<float> scores = layer.scores_by(make_leverage, {}, 0, 0);
  EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0), 48, 0.1);
}

TEST(Leverage, WhereKeysStandPlaysNoPart) {
  const TinyHead head = TinyHead::random(60, 4, 16);
  TinyHead apart = head;
  std::vector<float> with_gaps(static_cast<size_t>(60) * 5 * 16);
  for (size_t row = 0; row < 60; ++row) {
    apart.positions[row] = static_cast<int32_t>(5 * row);
    std::copy_n(head.keys.begin() + static_cast<std::ptrdiff_t>(row * 16), 16,
                with_gaps.begin() + static_cast<std::ptrdiff_t>(5 * row * 16));
  }
  with_gaps = rotated_by_halves(with_gaps, 1, 16);
  for (size_t row = 0; row < 60; ++row) {
    std::copy_n(with_gaps.begin() + static_cast<std::ptrdiff_t>(5 * row * 16), 16,
                apart.keys.begin() + static_cast<std::ptrdiff_t>(row * 16));
  }
  const std::vector<float> scores = TinyLayer({rotated(head)}).scores_by(make_leverage, {}, 0, 0);
  const std::vector<float> far = TinyLayer({apart}).scores_by(make_leverage, {}, 0, 0);
  for (size_t row = 0; row < 60; ++row) {
    EXPECT_NEAR(scores[row], far[row], 1e-4) << row;
  }
}

TEST(Leverage, AnotherSeedOrLayerDrawsOtherDirections) {
  const TinyHead head = TinyHead::random(100, 5, 64);
  const auto scores = [&](int layer, const std::string& seed) {
    return TinyLayer({head}, layer).scores_by(make_leverage, {{"seed", seed}}, 0, 0);
  };
  EXPECT_EQ(scores(0, "0"), scores(0, "0"));
  EXPECT_NE(scores(0, "0"), scores(0, "1"));
  EXPECT_NE(scores(0, "0"), scores(1, "0"));
}

TEST(Leverage, AKeyThatIsNoNumberIsWorthLeastAndChangesNoOther) {
  TinyHead head = TinyHead::random(50, 6);
  TinyHead hidden = head;
  hidden.hidden.assign(50, cache::kVisible);
  hidden.hidden[20] = cache::kHidden;
  head.keys[20 * 8 + 3] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> scores = TinyLayer({head}).scores_by(make_leverage, {}, 0, 0);
  const std::vector<float> expected = TinyLayer({hidden}).scores_by(make_leverage, {}, 0, 0);
  for (size_t row = 0; row < scores.size(); ++row) {
    EXPECT_TRUE(row == 20 ? std::isnan(scores[row]) : scores[row] == expected[row]) << row;
  }
}

TEST(Leverage, StalledPositionsAreRefused) {
  EXPECT_THROW(Policy::parse("leverage:budget=10,positions=stalled"), Error);
  EXPECT_NO_THROW(Policy::parse("leverage:budget=10,positions=contiguous"));
}

}  // namespace
}  // namespace winnow::policy
