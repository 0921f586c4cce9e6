// expected-attention: against plain loops in double, and against what kvpress scores.

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

constexpr int kSink = 4;

std::vector<float> golden_scores(const std::vector<GivenOption>& options, int kv_head) {
  return golden::Layer().scores_by(make_expected_attention, options, kSink, kv_head);
}

// The sum of all scores, where kvpress scores sinks with 1 + the greatest of all others.
double sum_with_sinks(const std::vector<GivenOption>& options) {
  double sum = 0;
  float greatest = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<float> scores = golden_scores(options, kv_head);
    sum = std::accumulate(scores.begin() + kSink, scores.end(), sum);
    greatest = std::max(greatest, *std::max_element(scores.begin() + kSink, scores.end()));
  }
  return sum + golden::kKvHeads * kSink * (1 + static_cast<double>(greatest));
}

TEST(ExpectedAttention, ScoresWhatKvpressScores) {
  EXPECT_NEAR(golden_scores({}, 0)[5], 0.091670, 2e-6);
  EXPECT_NEAR(golden_scores({}, 1)[7], 0.061542, 2e-6);
  EXPECT_NEAR(sum_with_sinks({}), 12.198754, 1e-5);
  const std::vector<GivenOption> means{{"use_covariance", "false"}, {"epsilon", "0.02"}};
  EXPECT_NEAR(golden_scores(means, 0)[5], 0.129529, 2e-6);
  EXPECT_NEAR(golden_scores(means, 1)[7], 0.084889, 2e-6);
  EXPECT_NEAR(sum_with_sinks(means), 13.878596, 1e-5);
}

// Some heads of one layer, and queries of all tokens.
struct Case {
  int head_dim, n_heads, n_kv_heads, n_rows;

  size_t dim() const { return static_cast<size_t>(head_dim); }
  int group() const { return n_heads / n_kv_heads; }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  std::vector<TinyHead> heads() const {
    std::vector<TinyHead> all;
    for (int i = 0; i < n_kv_heads; ++i) {
      all.push_back(TinyHead::random(n_rows, 5 + static_cast<unsigned>(i), head_dim));
    }
    return all;
  }
  // Before rotation [n_rows, n_heads, head_dim], with means that are not 0.
  std::vector<float> queries() const {
    std::mt19937 random(7);
    auto q = test::random_floats(random, static_cast<size_t>(n_rows * n_heads) * dim());
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = 3 * q[i] + (i % 3 == 0 ? 1.0F : 0.0F);
    }
    return q;
  }
};

// Turns x [head_dim] by the mean of the rotations at positions [first_pos, first_pos + n).
std::vector<double> turn_by_mean(const std::vector<double>& x, int first_pos, int n) {
  const size_t half = x.size() / 2;
  std::vector<double> turned(x.size());
  for (size_t c = 0; c < half; ++c) {
    const double frequency =
        std::pow(10000.0, -2.0 * static_cast<double>(c) / static_cast<double>(x.size()));
    for (int pos = first_pos; pos < first_pos + n; ++pos) {
      const double cosine = std::cos(pos * frequency) / n;
      const double sine = std::sin(pos * frequency) / n;
      turned[c] += x[c] * cosine - x[c + half] * sine;
      turned[c + half] += x[c] * sine + x[c + half] * cosine;
    }
  }
  return turned;
}

// Eq. (1) to (3): logits of rows from `first` on.
std::vector<double> plain_logits(const Case& c, const std::vector<float>& q, const TinyHead& rows,
                                 int head, int n_future, bool has_spread) {
  const size_t dim = c.dim();
  const auto first = static_cast<size_t>(kernels::kUncountedQueries);
  const auto n = static_cast<size_t>(c.n_rows);
  std::vector<double> mean(dim);
  std::vector<std::vector<double>> turned;
  for (size_t i = first; i < n; ++i) {
    const float* const query =
        q.data() + (i * static_cast<size_t>(c.n_heads) + static_cast<size_t>(head)) * dim;
    turned.push_back(turn_by_mean({query, query + dim}, c.n_rows, n_future));
    for (size_t e = 0; e < dim; ++e) {
      mean[e] += turned.back()[e] / static_cast<double>(n - first);
    }
  }
  std::vector<double> logits;
  for (size_t j = 0; j < n; ++j) {
    const float* const key = &rows.keys[j * dim];
    const double scale = static_cast<double>(c.scale());
    const double expected = scale * std::inner_product(mean.begin(), mean.end(), key, 0.0);
    double variance = 0;  // of the products of key and queries
    for (const std::vector<double>& query : turned) {
      const double product = scale * std::inner_product(query.begin(), query.end(), key, 0.0);
      variance += (product - expected) * (product - expected) / static_cast<double>(n - first);
    }
    logits.push_back(expected + (has_spread ? variance / 2 : 0));
  }
  return logits;
}

constexpr Case kCases[] = {{8, 4, 2, 24}, {64, 3, 1, 300}, {36, 2, 2, 70}, {128, 6, 2, 150}};

TEST(ExpectedAttention, ScoresAreTheEquationsValues) {
  for (const Case& c : kCases) {
    TinyLayer layer(c.heads());
    const std::vector<float> plain = c.queries();
    layer.set_queries(rotated_by_halves(plain, c.n_heads, c.head_dim), c.n_heads, 1, c.scale());
    for (const bool has_spread : {true, false}) {
      for (const bool has_norm : {true, false}) {
        const int n_future = has_norm ? 512 : 3;
        std::vector<double> expected(static_cast<size_t>(c.n_rows));
        for (int head = 0; head < c.group(); ++head) {
          std::vector<double> logits =
              plain_logits(c, plain, c.heads()[0], head, n_future, has_spread);
          const double highest = *std::max_element(logits.begin() + kSink, logits.end());
          double sum = 0;
          for (size_t j = kSink; j < logits.size(); ++j) {
            sum += std::exp(logits[j] - highest);
          }
          for (size_t j = kSink; j < logits.size(); ++j) {
            expected[j] += std::exp(logits[j] - highest) / sum / c.group();
          }
        }
        const std::vector<float> scores =
            layer.scores_by(make_expected_attention,
                            {{"use_covariance", has_spread ? "true" : "false"},
                             {"use_vnorm", has_norm ? "true" : "false"},
                             {"epsilon", "0.25"},
                             {"n_future", std::to_string(n_future)}},
                            kSink, 0);
        for (size_t j = 0; j < scores.size(); ++j) {
          if (j < kSink) {
            ASSERT_TRUE(std::isinf(scores[j]));
            continue;
          }
          const std::vector<TinyHead> heads = c.heads();
          const float* const value = &heads[0].values[j * c.dim()];
          const double norm = std::sqrt(std::inner_product(value, value + c.dim(), value, 0.0));
          const double worth = has_norm ? (expected[j] + 0.25) * norm : expected[j];
          // Logits of up to 100 are rounded to floats.
          ASSERT_NEAR(scores[j], worth, 3e-4 * worth + 1e-30)
              << c.head_dim << " " << has_spread << has_norm << " " << j;
        }
      }
    }
  }
}

// Keys and queries turned by the same orthogonal matrix have the same products. A rotation by one position is such a
// matrix, and commutes with all later ones.
TEST(ExpectedAttention, DoesNotChangeWhereKeysAndQueriesTurnTogether) {
  const Case c{64, 3, 1, 300};
  const kernels::Rotation rotation = TinyLayer::rotation(c.head_dim);
  std::vector<float> turns(rotation.n_rot());
  kernels::turns_at(rotation, 5, turns);
  std::vector<TinyHead> heads = c.heads();
  std::vector<float> q = rotated_by_halves(c.queries(), c.n_heads, c.head_dim);
  TinyLayer before(heads);
  before.set_queries(q, c.n_heads, 1, c.scale());
  for (std::vector<float>* const rows : {&heads[0].keys, &q}) {
    for (size_t at = 0; at < rows->size(); at += c.dim()) {
      kernels::turn(rotation, turns, std::span(*rows).subspan(at, c.dim()));
    }
  }
  TinyLayer after(heads);
  after.set_queries(q, c.n_heads, 1, c.scale());
  const std::vector<float> expected = before.scores_by(make_expected_attention, {}, 0, 0);
  const std::vector<float> scores = after.scores_by(make_expected_attention, {}, 0, 0);
  for (size_t j = 0; j < scores.size(); ++j) {
    EXPECT_NEAR(scores[j], expected[j], 1e-4F * expected[j]);
  }
}

TEST(ExpectedAttention, WithoutQueriesTheNormsOfTheValuesDecide) {
  const Case c{8, 2, 1, 4};
  TinyLayer layer(c.heads());
  layer.set_queries(c.queries(), c.n_heads, 1, c.scale());
  const std::vector<float> scores = layer.scores_by(make_expected_attention, {}, 0, 0);
  const std::vector<TinyHead> heads = c.heads();
  for (size_t j = 0; j < scores.size(); ++j) {
    const float* const value = &heads[0].values[j * c.dim()];
    EXPECT_NEAR(scores[j], std::sqrt(std::inner_product(value, value + c.dim(), value, 0.0)) / 4,
                1e-6);
  }
}

TEST(ExpectedAttention, AKeyThatIsNoNumberIsWorthLeastAndChangesNoOther) {
  const Case c{64, 3, 1, 100};
  std::vector<TinyHead> heads = c.heads();
  heads[0].keys[30 * c.dim() + 7] = std::numeric_limits<float>::quiet_NaN();
  heads[0].keys[31 * c.dim()] = std::numeric_limits<float>::infinity();
  std::vector<TinyHead> without = heads;
  without[0].hidden.assign(100, cache::kVisible);
  without[0].hidden[30] = without[0].hidden[31] = cache::kHidden;
  const auto scores = [&](const std::vector<TinyHead>& of) {
    TinyLayer layer(of);
    layer.set_queries(rotated_by_halves(c.queries(), c.n_heads, c.head_dim), c.n_heads, 1,
                      c.scale());
    return layer.scores_by(make_expected_attention, {}, kSink, 0);
  };
  const std::vector<float> with_nan = scores(heads);
  const std::vector<float> expected = scores(without);
  for (size_t j = kSink; j < with_nan.size(); ++j) {
    if (j == 30 || j == 31) {
      EXPECT_TRUE(std::isnan(with_nan[j]));
    } else {
      EXPECT_EQ(with_nan[j], expected[j]) << j;
    }
  }
}

TEST(ExpectedAttention, ScoresAreThoseOfTheVisibleRowsAlone) {
  const Case c{64, 4, 2, 300};
  std::vector<TinyHead> heads = c.heads();
  std::vector<TinyHead> kept;
  std::mt19937 random(10);
  for (TinyHead& head : heads) {
    head.hidden.assign(head.positions.size(), cache::kHidden);
    for (const int slot : test::random_slots(random, c.n_rows, 121)) {
      head.hidden[static_cast<size_t>(slot)] = cache::kVisible;
    }
    kept.push_back(head.compacted());
  }
  TinyLayer masked(heads);
  TinyLayer compacted(kept);
  for (TinyLayer* layer : {&masked, &compacted}) {
    layer->set_queries(c.queries(), c.n_heads, 1, c.scale());
  }
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    const std::vector<float> all = masked.scores_by(make_expected_attention, {}, kSink, kv_head);
    std::vector<float> visible;
    for (size_t slot = 0; slot < all.size(); ++slot) {
      if (heads[static_cast<size_t>(kv_head)].hidden[slot] == cache::kVisible) {
        visible.push_back(all[slot]);
      }
    }
    EXPECT_EQ(visible, compacted.scores_by(make_expected_attention, {}, kSink, kv_head));
  }
}

}  // namespace
}  // namespace winnow::policy
