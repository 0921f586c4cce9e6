// keyformer, scissorhands and rkv: against attention in plain loops and double precision, over random shapes.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "policy/frozen_noise.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

using Vector = std::vector<double>;

// A layer of random rows, some hidden, that random queries were asked of.
struct Asked {
  int n;
  int dim;
  int n_kv_heads;
  int group;
  float scale;
  std::vector<TinyHead> heads;
  std::vector<float> q;  // [n, n_kv_heads * group, dim]

  explicit Asked(unsigned seed) {
    std::mt19937 random(seed);
    const auto between = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    n = between(1, 70);
    dim = 4 * between(1, 5);
    n_kv_heads = between(1, 3);
    group = between(1, 3);
    scale = 1.0F / std::sqrt(static_cast<float>(dim));
    for (int head = 0; head < n_kv_heads; ++head) {
      heads.push_back(TinyHead::random(n, random(), dim));
      for (int slot = 0; slot < n; ++slot) {
        heads.back().hidden.push_back(slot > 0 && between(0, 5) == 0 ? cache::kHidden
                                                                     : cache::kVisible);
      }
    }
    q = test::random_floats(random, static_cast<size_t>(n * n_kv_heads * group * dim));
    for (float& each : q) {
      each *= 3;
    }
  }

  bool is_visible(int kv_head, int slot) const {
    return heads[static_cast<size_t>(kv_head)].hidden[static_cast<size_t>(slot)] == cache::kVisible;
  }

  const float* key(int kv_head, int slot) const {
    return &heads[static_cast<size_t>(kv_head)].keys[static_cast<size_t>(slot * dim)];
  }

  double dot(const float* a, const float* b) const {
    double sum = 0;
    for (int c = 0; c < dim; ++c) {
      sum += static_cast<double>(a[c]) * static_cast<double>(b[c]);
    }
    return sum;
  }

  // softmax((q(t) · k(j) · scale + noise(j)) / tau) over the visible j <= t.
  Vector weights(int kv_head, int query_head, int t, const Vector& noise = {},
                 double tau = 1) const {
    const float* const query =
        &q[static_cast<size_t>((t * n_kv_heads * group + kv_head * group + query_head) * dim)];
    Vector weights(static_cast<size_t>(n));
    double total = 0;
    for (int j = 0; j <= t; ++j) {
      if (is_visible(kv_head, j)) {
        const double logit = dot(query, key(kv_head, j)) * static_cast<double>(scale);
        double& weight = weights[static_cast<size_t>(j)];
        weight = std::exp((logit + (noise.empty() ? 0 : noise[static_cast<size_t>(j)])) / tau);
        total += weight;
      }
    }
    for (double& weight : weights) {
      weight /= total;
    }
    return weights;
  }

  std::vector<float> scores(std::unique_ptr<Scorer> (*make)(OptionReader&),
                            const std::vector<GivenOption>& options, int n_queries,
                            int kv_head) const {
    TinyLayer layer(heads);
    layer.set_queries(q, n_kv_heads * group, n_queries, scale);
    return layer.scores_by(make, options, 0, kv_head);
  }

  void expect_near(const std::vector<float>& found, const Vector& expected, int kv_head) const {
    for (int slot = 0; slot < n; ++slot) {
      const auto i = static_cast<size_t>(slot);
      if (!is_visible(kv_head, slot)) {
        EXPECT_TRUE(std::isnan(found[i]));
      } else if (std::isinf(expected[i])) {
        EXPECT_TRUE(std::isinf(found[i])) << slot;
      } else {
        EXPECT_NEAR(static_cast<double>(found[i]), expected[i], 2e-5) << slot;
      }
    }
  }
};

TEST(Scissorhands, AgreesWithPlainCounts) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Asked asked(seed);
    const int w = std::min(asked.n, seed % 2 == 0 ? 7 : 64);
    for (int head = 0; head < asked.n_kv_heads; ++head) {
      Vector expected(static_cast<size_t>(asked.n));
      double nearest = 1;  // of a weight to its share: rounding must not decide
      for (int t = asked.n - w; t < asked.n; ++t) {
        int n_seen = 0;
        for (int j = 0; j <= t; ++j) {
          n_seen += asked.is_visible(head, j) ? 1 : 0;
        }
        for (int of_group = 0; of_group < asked.group; ++of_group) {
          const Vector weights = asked.weights(head, of_group, t);
          for (int j = 0; j <= t; ++j) {
            const double weight = weights[static_cast<size_t>(j)];
            nearest = n_seen > 1 ? std::min(nearest, std::abs(weight - 1.0 / n_seen)) : nearest;
            expected[static_cast<size_t>(j)] +=
                asked.is_visible(head, j) && weight >= (1 - 1e-6) / n_seen ? 1 : 0;
          }
        }
      }
      for (int j = 0; j < asked.n; ++j) {
        expected[static_cast<size_t>(j)] /= asked.group * std::min(w, asked.n - j);
      }
      if (nearest > 1e-6) {
        asked.expect_near(
            asked.scores(make_scissorhands, {{"history", std::to_string(w)}}, w, head), expected,
            head);
      }
    }
  }
}

TEST(Keyformer, SoftmaxAgreesWithPlainLoops) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Asked asked(seed);
    const int w = std::min(asked.n, 9);
    for (int head = 0; head < asked.n_kv_heads; ++head) {
      Vector noise;
      for (int j = 0; j < asked.n; ++j) {
        noise.push_back(frozen_gumbel(4, j));
      }
      Vector expected(static_cast<size_t>(asked.n));
      for (int t = asked.n - w; t < asked.n; ++t) {
        for (int of_group = 0; of_group < asked.group; ++of_group) {
          const Vector weights = asked.weights(head, of_group, t, noise, 1.5);
          for (size_t j = 0; j < weights.size(); ++j) {
            expected[j] += weights[j] / w / asked.group;
          }
        }
      }
      asked.expect_near(asked.scores(make_keyformer,
                                     {{"noise", "softmax"},
                                      {"obs_window", std::to_string(w)},
                                      {"tau_init", "1.5"},
                                      {"seed", "4"}},
                                     w, head),
                        expected, head);
    }
  }
}

TEST(Keyformer, AdditiveIsH2oWithFrozenNoise) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Asked asked(seed);
    for (int head = 0; head < asked.n_kv_heads; ++head) {
      const auto tau = [&](const std::string& options) {
        return asked.scores(make_keyformer, {{"tau_init", options}, {"tau_end", "3"}}, 1, head);
      };
      const std::vector<float> plain = tau("0");
      const std::vector<float> h2o = asked.scores(make_h2o, {}, 1, head);
      const std::vector<float> noisy = tau("2");
      for (int slot = 0; slot < asked.n; ++slot) {
        const auto i = static_cast<size_t>(slot);
        if (asked.is_visible(head, slot)) {
          EXPECT_EQ(plain[i], h2o[i]);
          EXPECT_NEAR(static_cast<double>(noisy[i] - plain[i]), 2 * frozen_gumbel(0, slot), 1e-5);
        }
      }
    }
  }
}

TEST(Keyformer, NoiseIsThatOfItsDistribution) {
  double sum = 0;
  double squares = 0;
  constexpr int kDraws = 20000;
  for (int pos = 0; pos < kDraws; ++pos) {
    const double g = frozen_gumbel(0, pos);
    sum += g;
    squares += g * g;
  }
  const double mean = sum / kDraws;
  EXPECT_NEAR(mean, 0.5772, 0.03);                            // Euler's constant
  EXPECT_NEAR(squares / kDraws - mean * mean, 1.6449, 0.08);  // pi^2 / 6
  const FrozenNoise noise{.tau_init = 1, .tau_end = 2, .anneal = 100};
  EXPECT_EQ(noise.tau(0), 1);
  EXPECT_EQ(noise.tau(50), 1.5);
  EXPECT_EQ(noise.tau(1000), 2);
}

TEST(Keyformer, RefusesToDivideByNothing) {
  EXPECT_NE(test::error_of(ErrorCode::kInvalidArgument,
                           [] { Policy::parse("keyformer:budget=64,noise=softmax,tau_init=0"); })
                .find("tau_init and tau_end must be above 0"),
            std::string::npos);
}

TEST(Rkv, AgreesWithPlainLoops) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Asked asked(seed);
    const int w = std::min(asked.n, 8);
    const double lambda = seed % 2 == 0 ? 0.1 : 0.6;
    const double similar = seed % 3 == 0 ? 0.5 : 0.1;
    for (int head = 0; head < asked.n_kv_heads; ++head) {
      std::vector<int> visible;
      for (int j = 0; j < asked.n; ++j) {
        if (asked.is_visible(head, j)) {
          visible.push_back(j);
        }
      }
      Vector attention(visible.size());
      for (int t = asked.n - w; t < asked.n; ++t) {
        for (int of_group = 0; of_group < asked.group; ++of_group) {
          const Vector weights = asked.weights(head, of_group, t);
          for (size_t i = 0; i < visible.size(); ++i) {
            attention[i] += weights[static_cast<size_t>(visible[i])] / w / asked.group;
          }
        }
      }
      const auto n_exempt = static_cast<size_t>(0.2F * static_cast<float>(visible.size()));
      Vector redundancy(visible.size());
      bool is_clear = true;
      for (size_t i = 0; i < visible.size(); ++i) {
        const float* const own = asked.key(head, visible[i]);
        size_t n_latest = 0;
        for (size_t j = visible.size(); j-- > 0;) {
          const float* const other = asked.key(head, visible[j]);
          const double cosine =
              asked.dot(own, other) / std::sqrt(asked.dot(own, own) * asked.dot(other, other));
          is_clear &= i == j || std::abs(cosine - similar) > 1e-5;
          const bool is_exempt = i != j && cosine > similar && n_latest < n_exempt;
          n_latest += is_exempt ? 1 : 0;
          redundancy[j] += i == j || is_exempt ? 0 : cosine / static_cast<double>(visible.size());
        }
      }
      double total = 0;
      for (double& each : redundancy) {
        each = std::exp(each);
        total += each;
      }
      Vector expected(static_cast<size_t>(asked.n));
      for (size_t i = 0; i < visible.size(); ++i) {
        double importance = 0;
        for (size_t j = i < 3 ? 0 : i - 3; j < std::min(visible.size(), i + 4); ++j) {
          importance = std::max(importance, attention[j]);
        }
        expected[static_cast<size_t>(visible[i])] =
            visible[i] >= asked.n - w ? std::numeric_limits<double>::infinity()
                                      : lambda * importance - (1 - lambda) * redundancy[i] / total;
      }
      if (is_clear) {
        asked.expect_near(
            asked.scores(make_rkv,
                         {{"lambda", std::to_string(lambda)}, {"similar", std::to_string(similar)}},
                         8, head),
            expected, head);
      }
    }
  }
}

// Of rows that say the same, the latest stays.
TEST(Rkv, KeepsTheLatestOfRowsThatRepeatEachOther) {
  std::mt19937 random(1);
  constexpr int kRows = 40;
  std::vector<float> keys = test::random_floats(random, size_t{kRows} * 8);
  for (int repeated = 5; repeated < 15; ++repeated) {
    std::copy_n(keys.begin() + std::ptrdiff_t{15} * 8, 8,
                keys.begin() + std::ptrdiff_t{repeated} * 8);
  }
  TinyLayer layer({TinyHead::with_rows(8, keys, std::vector<float>(keys.size()))});
  layer.set_queries(std::vector<float>(size_t{kRows} * 8), 1, 8, 1);
  const std::vector<int> kept = layer.kept_by(
      Policy::parse("rkv:budget=29,n_sink=0,n_recent=0,lambda=0,retain=0.03,similar=0.99"))[0];
  EXPECT_TRUE(std::ranges::binary_search(kept, 15));
  EXPECT_EQ(std::ranges::count_if(kept, [](int slot) { return slot >= 5 && slot < 15; }), 0);
}

}  // namespace
}  // namespace winnow::policy
