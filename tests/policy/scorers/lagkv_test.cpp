#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

std::vector<float> scores_of(const TinyHead& head, int lag, int n_sink, bool cross = false) {
  const TinyLayer layer({head});
  return layer.scores_by(
      make_lagkv, {{"lag", std::to_string(lag)}, {"cross_scoring", cross ? "true" : "false"}},
      n_sink, 0);
}

// One kind of vector's softmax of deviations for the rows [first, first + lag), measured by the next lag rows.
std::vector<double> plain_spread(const std::vector<float>& rows, size_t dim, size_t first,
                                 size_t lag) {
  std::vector<double> z(lag);
  for (size_t i = 0; i < lag; ++i) {
    std::vector<double> x(dim);
    for (size_t c = 0; c < dim; ++c) {
      double low = std::numeric_limits<double>::infinity();
      double high = -low;
      for (size_t row = first + lag; row < first + 2 * lag; ++row) {
        low = std::min(low, static_cast<double>(rows[row * dim + c]));
        high = std::max(high, static_cast<double>(rows[row * dim + c]));
      }
      x[c] = (static_cast<double>(rows[(first + i) * dim + c]) - low) / (high - low);
    }
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(dim);
    double squares = 0;
    for (const double each : x) {
      squares += (each - mean) * (each - mean);
    }
    z[i] = std::sqrt(squares / static_cast<double>(dim - 1));
  }
  const double highest = *std::max_element(z.begin(), z.end());
  for (double& each : z) {
    each = std::exp(each - highest);
  }
  const double sum = std::accumulate(z.begin(), z.end(), 0.0);
  for (double& each : z) {
    each /= sum;
  }
  return z;
}

TEST(LagKv, ScoresAreTheEquationsValues) {
  for (const int dim : {2, 8, 33, 64}) {
    for (const size_t lag : {2U, 5U, 16U}) {
      constexpr int kRows = 70;
      constexpr size_t kSinks = 3;
      const TinyHead head = TinyHead::random(kRows, static_cast<unsigned>(dim), dim);
      const std::vector<float> scores =
          scores_of(head, static_cast<int>(lag), static_cast<int>(kSinks), true);
      const size_t n_partitions = (kRows - kSinks) / lag;
      for (size_t slot = 0; slot < kRows; ++slot) {
        double expected = 1;
        const size_t partition = slot < kSinks ? n_partitions : (slot - kSinks) / lag;
        if (partition + 1 < n_partitions) {
          const size_t first = kSinks + partition * lag;
          const auto at = [&](const std::vector<float>& rows) {
            return plain_spread(rows, static_cast<size_t>(dim), first, lag)[slot - first];
          };
          expected = (at(head.keys) + at(head.values)) / 2;
        }
        ASSERT_NEAR(scores[slot], expected, 1e-5) << dim << ", " << lag << ", slot " << slot;
      }
    }
  }
}

TEST(LagKv, ScoresWhatKvpressScores) {
  double sum = 0;
  double sum_cross = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const TinyLayer layer(golden::heads());
    const auto scores = layer.scores_by(make_lagkv, {{"lag", "4"}}, 2, kv_head);
    EXPECT_EQ(kv_head == 0 ? scores[5] : scores[7], 0.25F);
    sum += std::accumulate(scores.begin(), scores.end(), 0.0);
    const auto cross =
        layer.scores_by(make_lagkv, {{"lag", "4"}, {"cross_scoring", "true"}}, 2, kv_head);
    sum_cross += std::accumulate(cross.begin(), cross.end(), 0.0);
    if (kv_head == 0) {
      EXPECT_NEAR(cross[2], 0.260262, 1e-6);
      EXPECT_NEAR(cross[5], 0.251203, 1e-6);
      EXPECT_NEAR(cross[17], 0.230727, 1e-6);
    }
  }
  EXPECT_EQ(sum, 28.0);
  EXPECT_NEAR(sum_cross, 24.0, 1e-5);
}

TEST(LagKv, FewerThanTwoPartitionsRankByPosition) {
  const std::vector<float> scores = scores_of(TinyHead::random(9, 1), 4, 2);
  EXPECT_EQ(scores, (std::vector<float>{1, 1, 0, 1 / 7.0F, 2 / 7.0F, 3 / 7.0F, 4 / 7.0F, 5 / 7.0F,
                                        6 / 7.0F}));
  EXPECT_EQ(scores_of(TinyHead::random(2, 1), 4, 2), (std::vector<float>{1, 1}));
  EXPECT_EQ(scores_of(TinyHead::random(1, 1), 4, 2), (std::vector<float>{1}));
}

TEST(LagKv, SinksAreTruePositionsWhateverTheSlot) {
  TinyHead head = TinyHead::random(20, 3);
  for (size_t slot = 1; slot < head.positions.size(); ++slot) {
    head.positions[slot] += 100;  // of three sinks only position 0 is left
  }
  EXPECT_EQ(scores_of(head, 4, 3), scores_of(head, 4, 1));
}

TEST(LagKv, EqualRowsRankTheLowerPositionHigher) {
  const std::vector<float> scores = scores_of(
      TinyHead::with_rows(2, std::vector<float>(24, 1.0F), std::vector<float>(24, 2.0F)), 4, 0);
  EXPECT_EQ(scores, (std::vector<float>{0.75F, 0.5F, 0.25F, 0, 0.75F, 0.5F, 0.25F, 0, 1, 1, 1, 1}));
}

TEST(LagKv, AChannelThatIsConstantInTheNextPartitionHasNoPart) {
  TinyHead head = TinyHead::random(16, 5, 3);
  for (size_t row = 4; row < 16; ++row) {
    head.keys[row * 3] = 1.0F;  // the first partition still varies there
  }
  const std::vector<float> scores = scores_of(head, 4, 0, true);
  head.keys[0] = 1000.0F;
  EXPECT_EQ(scores_of(head, 4, 0, true), scores);
  for (const float score : scores) {
    EXPECT_TRUE(std::isfinite(score));
  }
}

TEST(LagKv, RowsThatAreNotFiniteRankLowestInTheirPartitionAlone) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    TinyHead head = TinyHead::random(24, 6);
    const std::vector<float> before = scores_of(head, 4, 0);
    head.values[static_cast<size_t>(2 * head.head_dim)] = bad;
    const std::vector<float> scores = scores_of(head, 4, 0);
    EXPECT_EQ(scores[2], 0.0F) << bad;
    EXPECT_TRUE(std::equal(scores.begin() + 4, scores.end(), before.begin() + 4)) << bad;
    EXPECT_TRUE(std::isnan(scores_of(head, 4, 0, true)[2])) << bad;
  }
}

}  // namespace
}  // namespace winnow::policy
