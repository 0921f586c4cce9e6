// noncausal and compactor: against plain loops, and against what kvpress scores.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

struct Case {
  int head_dim, n_heads, n_kv_heads, n_rows, length;
  bool is_scaled;

  size_t dim() const { return static_cast<size_t>(head_dim); }
  size_t group() const { return static_cast<size_t>(n_heads / n_kv_heads); }
  kernels::AttendShape shape() const {
    return {.n_heads = n_heads,
            .n_kv_heads = n_kv_heads,
            .head_dim = head_dim,
            .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  }
  std::vector<float> queries() const {
    std::mt19937 random(3);
    return test::random_floats(random, static_cast<size_t>(n_rows * n_heads) * dim(), 0.5F);
  }
  std::vector<GivenOption> options() const {
    return {{"neighbours", std::to_string(length)}, {"scaled", is_scaled ? "true" : "false"}};
  }
  TinyHead head(int kv_head) const {
    TinyHead head = TinyHead::random(n_rows, 5 + static_cast<unsigned>(kv_head), head_dim);
    fill_in_chunks(queries(), shape(), kv_head, {.length = length, .is_scaled = is_scaled}, head);
    return head;
  }
};

class ChunkLayer : public TinyLayer {
 public:
  explicit ChunkLayer(const Case& c) : TinyLayer(heads_of(c)) {
    set_queries(c.queries(), c.n_heads, c.length, c.shape().scale);
  }

 private:
  static std::vector<TinyHead> heads_of(const Case& c) {
    std::vector<TinyHead> heads;
    for (int i = 0; i < c.n_kv_heads; ++i) {
      heads.push_back(c.head(i));
    }
    return heads;
  }
};

// Eq. (1) to (3), row by row.
std::vector<double> plain_scores(const Case& c, int kv_head) {
  const std::vector<float> q = c.queries();
  const TinyHead head = c.head(kv_head);
  const auto n = static_cast<size_t>(c.n_rows);
  const auto length = static_cast<size_t>(c.length);
  std::vector<double> worth(n);
  for (size_t t = 0; t < n; ++t) {
    const size_t begin = t / length * length;
    const size_t end = std::min(n, begin + length);
    for (size_t h = 0; h < c.group(); ++h) {
      const size_t at =
          (t * static_cast<size_t>(c.n_heads) + static_cast<size_t>(kv_head) * c.group() + h) *
          c.dim();
      std::vector<double> weights;
      for (size_t j = begin; j < end; ++j) {
        double product = 0;
        for (size_t i = 0; i < c.dim(); ++i) {
          product +=
              static_cast<double>(q[at + i]) * static_cast<double>(head.keys[j * c.dim() + i]);
        }
        weights.push_back(product * (c.is_scaled ? static_cast<double>(c.shape().scale) : 1.0));
      }
      const double greatest = *std::max_element(weights.begin(), weights.end());
      double sum = 0;
      for (double& each : weights) {
        each = std::exp(each - greatest);
        sum += each;
      }
      for (size_t j = begin; j < end; ++j) {
        worth[j] += weights[j - begin] / sum / static_cast<double>(c.group());
      }
    }
  }
  for (size_t j = 0; j < n; ++j) {
    double square = 0;
    for (size_t i = j * c.dim(); i < (j + 1) * c.dim(); ++i) {
      square += static_cast<double>(head.values[i]) * static_cast<double>(head.values[i]);
    }
    worth[j] *= std::sqrt(square);
  }
  std::vector<double> pooled(n);
  for (size_t j = 0; j < n; ++j) {
    pooled[j] = ((j > 0 ? worth[j - 1] : 0) + worth[j] + (j + 1 < n ? worth[j + 1] : 0)) / 3;
  }
  return pooled;
}

constexpr Case kCases[] = {{8, 4, 2, 24, 8, false},    {8, 4, 2, 27, 8, false},
                           {64, 3, 1, 150, 64, true},  {36, 2, 2, 70, 256, false},
                           {128, 6, 2, 90, 30, false}, {16, 2, 1, 1100, 1024, true}};

TEST(Noncausal, ScoresAreTheEquationsValues) {
  for (const Case& c : kCases) {
    const ChunkLayer layer(c);
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const std::vector<double> expected = plain_scores(c, kv_head);
      const std::vector<float> scores = layer.scores_by(make_noncausal, c.options(), 0, kv_head);
      for (size_t j = 0; j < expected.size(); ++j) {
        ASSERT_NEAR(scores[j], expected[j], 1e-4 * std::max(1.0, expected[j]))
            << c.head_dim << ", " << c.n_rows << " rows, head " << kv_head << ", row " << j;
      }
    }
  }
}

// kvpress takes the mean of the scores of both heads from them and divides by their deviation.
TEST(Noncausal, ScoresWhatKvpressScores) {
  TinyLayer layer(golden::heads_with_chunks(8));
  layer.set_queries(golden::queries(), golden::kHeads, 8, golden::scale());
  std::vector<float> both = layer.scores_by(make_noncausal, {{"neighbours", "8"}}, 0, 0);
  const std::vector<float> second = layer.scores_by(make_noncausal, {{"neighbours", "8"}}, 0, 1);
  both.insert(both.end(), second.begin(), second.end());
  const double n = static_cast<double>(both.size());
  const double mean = std::accumulate(both.begin(), both.end(), 0.0) / n;
  double squares = 0;
  for (const float each : both) {
    squares += (static_cast<double>(each) - mean) * (static_cast<double>(each) - mean);
  }
  const double deviation = std::sqrt(squares / (n - 1));
  EXPECT_NEAR((static_cast<double>(both[5]) - mean) / deviation, 0.297328, 1e-5);
  EXPECT_NEAR((static_cast<double>(second[7]) - mean) / deviation, 0.482974, 1e-5);

  EXPECT_EQ(layer.kept_by(Policy::parse("noncausal:budget=12,n_sink=0,n_recent=0,neighbours=8")),
            (KeptSlots{{2, 3, 4, 5, 6, 8, 9, 10, 17, 19, 20, 21},
                       {7, 8, 9, 10, 11, 15, 16, 17, 18, 20, 21, 22}}));
}

TEST(Noncausal, NeedsPositionsAsTheyAre) {
  EXPECT_THROW(Policy::parse("noncausal:budget=10,positions=contiguous"), Error);
  EXPECT_THROW(Policy::parse("compactor:budget=10,positions=stalled"), Error);
}

std::vector<double> normalized(std::vector<float> x) {
  const auto n = static_cast<double>(x.size());
  const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
  double squares = 0;
  for (const float each : x) {
    squares += (static_cast<double>(each) - mean) * (static_cast<double>(each) - mean);
  }
  std::vector<double> z;
  for (const float each : x) {
    z.push_back((static_cast<double>(each) - mean) / std::sqrt(squares / (n - 1)));
  }
  return z;
}

TEST(Compactor, BlendsLeverageAndTheNeighboursAttention) {
  for (const Case& c : kCases) {
    const ChunkLayer layer(c);
    std::vector<GivenOption> options = c.options();
    options.push_back({"blend", "0.7"});
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const std::vector<double> a = normalized(layer.scores_by(make_leverage, {}, 0, kv_head));
      const std::vector<double> b =
          normalized(layer.scores_by(make_noncausal, c.options(), 0, kv_head));
      const std::vector<float> scores = layer.scores_by(make_compactor, options, 0, kv_head);
      for (size_t j = 0; j < a.size(); ++j) {
        ASSERT_NEAR(scores[j], 0.7 * a[j] + b[j], 1e-4) << j;
      }
    }
  }
}

TEST(Compactor, SinksComeFirstAndHaveNoPartInTheOthers) {
  const Case c{8, 4, 2, 60, 16, false};
  std::vector<TinyHead> heads{c.head(0), c.head(1)};
  const auto scores = [&](const std::vector<TinyHead>& of) {
    TinyLayer layer(of);
    layer.set_queries(c.queries(), c.n_heads, c.length, c.shape().scale);
    return layer.scores_by(make_compactor, c.options(), 4, 0);
  };
  const std::vector<float> before = scores(heads);
  for (size_t i = 0; i < 4 * c.dim(); ++i) {
    heads[0].values[i] *= 100;
  }
  const std::vector<float> after = scores(heads);
  EXPECT_EQ(before, after);
  for (size_t j = 0; j < before.size(); ++j) {
    EXPECT_EQ(std::isinf(before[j]), j < 4) << j;
  }
}

TEST(Compactor, ScoresThatAreAllTheSameCountNothing) {
  TinyHead head =
      TinyHead::with_rows(8, std::vector<float>(128, 1.0F), std::vector<float>(128, 1.0F));
  head.norms.assign(16, 1.0F);
  TinyLayer layer({head});
  for (const float each : layer.scores_by(make_compactor, {{"blend", "1"}}, 0, 0)) {
    EXPECT_TRUE(std::isfinite(each));
  }
}

}  // namespace
}  // namespace winnow::policy
