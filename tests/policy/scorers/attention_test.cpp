// snapkv, tova and h2o: against plain loops in double, and against what kvpress scores.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Some heads of one layer, and queries of all tokens.
struct Case {
  int head_dim, n_heads, n_kv_heads, n_rows;

  std::vector<TinyHead> heads(unsigned seed) const {
    std::vector<TinyHead> all;
    for (int i = 0; i < n_kv_heads; ++i) {
      all.push_back(TinyHead::random(n_rows, seed + static_cast<unsigned>(i), head_dim));
    }
    return all;
  }
  std::vector<float> queries(unsigned seed) const {
    std::mt19937 random(seed);
    return test::random_floats(random, static_cast<size_t>(n_rows * n_heads * head_dim));
  }
  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  int group() const { return n_heads / n_kv_heads; }
};

// Causal softmax over the visible rows: weights [n_queries, n_rows] of the queries at positions from first_pos on.
Matrix plain_attention(const TinyHead& rows, std::span<const float> q, int head, const Case& c,
                       int first_pos) {
  const auto dim = static_cast<size_t>(c.head_dim);
  Matrix weights;
  for (int pos = first_pos; pos < c.n_rows; ++pos) {
    const float* const query =
        q.data() +
        (static_cast<size_t>(pos) * static_cast<size_t>(c.n_heads) + static_cast<size_t>(head)) *
            dim;
    std::vector<double>& row = weights.emplace_back(rows.positions.size());
    double sum = 0;
    for (size_t j = 0; j < row.size(); ++j) {
      if (rows.positions[j] > pos || (!rows.hidden.empty() && rows.hidden[j] != 0)) {
        continue;
      }
      const double dot = std::inner_product(query, query + dim, &rows.keys[j * dim], 0.0);
      row[j] = std::exp(dot * static_cast<double>(c.scale()));
      sum += row[j];
    }
    for (double& weight : row) {
      weight /= sum;
    }
  }
  return weights;
}

std::vector<double> column_sums(const Matrix& weights) {
  std::vector<double> sums(weights[0].size());
  for (const auto& row : weights) {
    for (size_t j = 0; j < row.size(); ++j) {
      sums[j] += row[j];
    }
  }
  return sums;
}

constexpr Case kCases[] = {{8, 4, 2, 24}, {64, 3, 1, 300}, {33, 2, 2, 70}, {128, 6, 2, 513}};

TEST(SnapKv, ScoresAreTheEquationsValues) {
  for (const Case& c : kCases) {
    for (const int window : {1, 4, 64}) {
      for (const bool takes_max : {true, false}) {
        TinyLayer layer(c.heads(5));
        const std::vector<float> q = c.queries(6);
        layer.set_queries(q, c.n_heads, window, c.scale());
        const int n_queries = std::min(window, c.n_rows);
        const auto n = static_cast<size_t>(c.n_rows - n_queries);
        const std::vector<float> scores = layer.scores_by(
            make_snapkv,
            {{"obs_window", std::to_string(window)}, {"pool", takes_max ? "max" : "avg"}}, 0, 0);
        std::vector<double> expected(n);
        for (int head = 0; head < c.group(); ++head) {
          const auto sums =
              column_sums(plain_attention(c.heads(5)[0], q, head, c, c.n_rows - n_queries));
          for (size_t i = 0; i < n; ++i) {
            double pooled = 0;
            for (size_t j = i < 3 ? 0 : i - 3; j < std::min(n, i + 4); ++j) {
              pooled = takes_max ? std::max(pooled, sums[j]) : pooled + sums[j] / 7;
            }
            expected[i] += pooled / n_queries / c.group();
          }
        }
        for (size_t i = 0; i < n; ++i) {
          ASSERT_NEAR(scores[i], expected[i], 2e-6 * expected[i] + 1e-9)
              << c.head_dim << " " << window << " " << i;
        }
        for (size_t i = n; i < scores.size(); ++i) {
          ASSERT_TRUE(std::isinf(scores[i])) << i;
        }
      }
    }
  }
}

TEST(SnapKv, ScoresWhatKvpressScores) {
  double sum = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<float> scores = golden::Layer().scores_by(
        make_snapkv, {{"obs_window", "4"}, {"kernel", "5"}, {"pool", "avg"}}, 0, kv_head);
    EXPECT_NEAR(kv_head == 0 ? scores[5] : scores[7], kv_head == 0 ? 0.043465 : 0.042154, 1e-6);
    sum = std::accumulate(scores.begin(), scores.end() - 4, sum);
  }
  // kvpress scores the window's 4 rows of each head with 1 + the greatest of all other scores.
  const std::vector<float> first = golden::Layer().scores_by(
      make_snapkv, {{"obs_window", "4"}, {"kernel", "5"}, {"pool", "avg"}}, 0, 0);
  const std::vector<float> second = golden::Layer().scores_by(
      make_snapkv, {{"obs_window", "4"}, {"kernel", "5"}, {"pool", "avg"}}, 0, 1);
  const float greatest = std::max(*std::max_element(first.begin(), first.end() - 4),
                                  *std::max_element(second.begin(), second.end() - 4));
  EXPECT_NEAR(sum + 8 * (1 + static_cast<double>(greatest)), 10.054033, 1e-5);
}

// One head has all the weight on one row: the mean of the group shares it, the maximum does not; and pooling before or
// after the group's maximum is the same, but not before or after its mean.
TEST(SnapKv, TheOrderOfPoolingAndReducingMatters) {
  const Case c{8, 4, 2, 24};
  const auto scores = [&](const char* group, const char* reduce_first) {
    TinyLayer layer(c.heads(5));
    layer.set_queries(c.queries(6), c.n_heads, 4, c.scale());
    return layer.scores_by(
        make_snapkv, {{"obs_window", "4"}, {"group", group}, {"reduce_first", reduce_first}}, 0, 0);
  };
  EXPECT_EQ(scores("max", "false"), scores("max", "true"));
  EXPECT_NE(scores("mean", "false"), scores("mean", "true"));
  EXPECT_NE(scores("mean", "false"), scores("max", "false"));
}

TEST(SnapKv, WeighsAttentionByValuesAndByHowSteadyItIs) {
  for (const Case& c : kCases) {
    for (const auto& [power, discount] : {std::pair{1.5, 0.0}, {0.0, 0.7}, {2.0, 3.0}}) {
      const TinyHead head = c.heads(5)[0];
      TinyLayer layer(c.heads(5));
      const std::vector<float> q = c.queries(6);
      layer.set_queries(q, c.n_heads, 6, c.scale());
      const std::vector<float> scores =
          layer.scores_by(make_snapkv,
                          {{"obs_window", "6"},
                           {"kernel", "1"},
                           {"force_window", "false"},
                           {"value_power", std::to_string(power)},
                           {"entropy_discount", std::to_string(discount)}},
                          0, 0);
      const auto dim = static_cast<size_t>(c.head_dim);
      for (size_t j = 0; j < scores.size(); ++j) {
        double expected = 0;
        for (int i = 0; i < c.group(); ++i) {
          const Matrix weights = plain_attention(head, q, i, c, c.n_rows - 6);
          double sum = 0;
          for (const auto& row : weights) {
            sum += row[j] / c.group();
          }
          double entropy = 0;
          for (const auto& row : weights) {
            const double share = row[j] / c.group() / sum;
            entropy -= share > 0 ? share * std::log(share) : 0;
          }
          expected += sum / 6 / (1 + discount * entropy);
        }
        const float* const v = head.values.data() + j * dim;
        expected *= std::pow(std::inner_product(v, v + dim, v, 0.0), power / 2);
        ASSERT_NEAR(scores[j], expected, 2e-5 * expected + 1e-8)
            << c.head_dim << " " << power << " " << discount << " " << j;
      }
    }
  }
}

TEST(SnapKv, ARowWhoseValueIsNotFiniteIsWorthNothingByValues) {
  const Case c{8, 4, 2, 24};
  std::vector<TinyHead> heads = c.heads(5);
  heads[0].values[3 * 8 + 2] = std::numeric_limits<float>::infinity();
  TinyLayer layer(heads);
  layer.set_queries(c.queries(6), c.n_heads, 4, c.scale());
  const std::vector<float> scores = layer.scores_by(
      make_snapkv, {{"obs_window", "4"}, {"kernel", "1"}, {"value_power", "1"}}, 0, 0);
  EXPECT_EQ(scores[3], 0);
  EXPECT_GT(scores[2], 0);
}

// The `k` best scores of each of these heads, as one set; equal scores in order of position.
std::set<size_t> best_of_each(const std::vector<std::vector<float>>& heads, size_t k) {
  std::set<size_t> together;
  for (const std::vector<float>& scores : heads) {
    std::vector<size_t> order(scores.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return scores[i]; });
    together.insert(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return together;
}

// The queries of one of the heads alone.
std::vector<float> queries_of(const std::vector<float>& q, const Case& c, int head) {
  const auto dim = static_cast<size_t>(c.head_dim);
  std::vector<float> of_head;
  for (size_t i = static_cast<size_t>(head) * dim; i < q.size();
       i += static_cast<size_t>(c.n_heads) * dim) {
    of_head.insert(of_head.end(), q.begin() + static_cast<std::ptrdiff_t>(i),
                   q.begin() + static_cast<std::ptrdiff_t>(i + dim));
  }
  return of_head;
}

TEST(SnapKv, QueryHeadsChooseRowsOfTheirOwnAndTheGroupKeepsTheirUnion) {
  for (const Case& c : kCases) {
    for (const char* kernel : {"1", "7"}) {
      const std::vector<GivenOption> options{
          {"obs_window", "4"}, {"kernel", kernel}, {"force_window", "false"}};
      const std::vector<float> q = c.queries(6);
      std::vector<std::vector<float>> heads;  // what each query head would score alone
      for (int head = 0; head < c.group(); ++head) {
        TinyLayer alone({c.heads(5)[0]});
        alone.set_queries(queries_of(q, c, head), 1, 4, c.scale());
        heads.push_back(alone.scores_by(make_snapkv, options, 0, 0));
      }
      TinyLayer layer(c.heads(5));
      layer.set_queries(q, c.n_heads, 4, c.scale());
      std::vector<GivenOption> as_union = options;
      as_union.push_back({"group", "union"});
      const std::vector<float> scores = layer.scores_by(make_snapkv, as_union, 0, 0);
      for (size_t k = 1; k <= scores.size(); ++k) {
        std::set<size_t> chosen;
        for (size_t i = 0; i < scores.size(); ++i) {
          if (scores[i] >= -static_cast<float>(k)) {
            chosen.insert(i);
          }
        }
        ASSERT_EQ(chosen, best_of_each(heads, k)) << c.head_dim << " " << kernel << " " << k;
      }
      // A policy fills its budget with them, and says how many rows each head has got.
      for (const int budget : {1, 5, 20}) {
        size_t k = 1;
        while (std::ssize(best_of_each(heads, k)) < budget) {
          ++k;
        }
        const auto policy = Policy::parse(
            "snapkv:group=union,obs_window=4,force_window=false,n_sink=0,n_recent=0,"
            "kernel=" +
            std::string(kernel) + ",budget=" + std::to_string(budget));
        const LayerView view = layer.view();
        kernels::ParallelFor parallel(1);
        Choice choice;
        ASSERT_TRUE(policy.choose({&view, 1}, parallel, choice));
        EXPECT_EQ(choice.query_head_rows[0], k);
        ASSERT_EQ(std::ssize(choice.kept[0]), budget);
        const std::set<size_t> most = best_of_each(heads, k);
        const std::set<size_t> least = best_of_each(heads, k - 1);
        const std::set<size_t> kept(choice.kept[0].begin(), choice.kept[0].end());
        EXPECT_TRUE(std::ranges::includes(most, kept));
        EXPECT_TRUE(std::ranges::includes(kept, least));
      }
    }
  }
}

TEST(SnapKv, AQueryHeadAloneChoosesWhatItsGroupWould) {
  const Case c{8, 2, 2, 60};
  TinyLayer layer(c.heads(5));
  layer.set_queries(c.queries(6), c.n_heads, 8, c.scale());
  const std::string options = "obs_window=8,n_sink=2,n_recent=3,budget=20";
  EXPECT_EQ(layer.kept_by(Policy::parse("snapkv:group=union," + options)),
            layer.kept_by(Policy::parse("snapkv:" + options)));
  const LayerView view = layer.view();
  kernels::ParallelFor parallel(1);
  Choice choice;
  ASSERT_TRUE(Policy::parse("snapkv:" + options).choose({&view, 1}, parallel, choice));
  EXPECT_TRUE(choice.query_head_rows.empty()) << "heads that are put together choose no rows";
}

TEST(SnapKv, RefusesToPutHeadsTogetherBeforeEachChooses) {
  OptionReader reader(std::vector<GivenOption>{{"group", "union"}, {"reduce_first", "true"}});
  make_snapkv(reader);
  ASSERT_EQ(reader.problems().size(), 1U);
  EXPECT_NE(reader.problems()[0].find("group=union"), std::string::npos);
}

TEST(SnapKv, AWindowThatCompetesIsScoredLikeTheOthers) {
  const Case c{8, 4, 2, 24};
  TinyLayer layer(c.heads(5));
  layer.set_queries(c.queries(6), c.n_heads, 4, c.scale());
  const std::vector<float> scores = layer.scores_by(
      make_snapkv, {{"obs_window", "4"}, {"kernel", "1"}, {"force_window", "false"}}, 0, 1);
  EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0), 1.0, 1e-6);
}

TEST(Tova, ScoresAreTheEquationsValues) {
  for (const Case& c : kCases) {
    TinyLayer layer(c.heads(7));
    const std::vector<float> q = c.queries(8);
    layer.set_queries(q, c.n_heads, 1, c.scale());
    for (const bool per_layer : {false, true}) {
      std::vector<double> expected(static_cast<size_t>(c.n_rows));
      const int n_heads = per_layer ? c.n_heads : c.group();
      for (int head = 0; head < n_heads; ++head) {
        const auto kv_head = static_cast<size_t>(head / c.group());
        const auto sums =
            column_sums(plain_attention(c.heads(7)[kv_head], q, head, c, c.n_rows - 1));
        for (size_t i = 0; i < expected.size(); ++i) {
          expected[i] += sums[i] / n_heads;
        }
      }
      const std::vector<float> scores =
          layer.scores_by(make_tova, {{"per_layer", per_layer ? "true" : "false"}}, 0, 0);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(scores[i], expected[i], 2e-6 * expected[i] + 1e-9) << c.head_dim << " " << i;
      }
    }
  }
}

TEST(Tova, ScoresWhatKvpressScores) {
  const std::vector<float> scores =
      golden::Layer().scores_by(make_tova, {{"per_layer", "true"}}, 0, 0);
  EXPECT_NEAR(scores[5], 0.037082, 1e-6);
  EXPECT_NEAR(scores[7], 0.040139, 1e-6);
  EXPECT_EQ(golden::Layer().scores_by(make_tova, {{"per_layer", "true"}}, 0, 1), scores);
}

TEST(H2o, ScoresAreTheEquationsValues) {
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const Case c{golden::kHeadDim, golden::kHeads, golden::kKvHeads, golden::kRows};
    std::vector<double> expected(golden::kRows);
    for (int head = 0; head < c.group(); ++head) {
      const auto sums =
          column_sums(plain_attention(golden::heads()[static_cast<size_t>(kv_head)],
                                      golden::queries(), kv_head * c.group() + head, c, 0));
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] += sums[i] / c.group();
      }
    }
    const std::vector<float> sums = golden::Layer().scores_by(make_h2o, {}, 0, kv_head);
    const std::vector<float> means =
        golden::Layer().scores_by(make_h2o, {{"observed", "true"}}, 0, kv_head);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(sums[i], expected[i], 1e-6);
      EXPECT_NEAR(means[i], expected[i] / static_cast<double>(golden::kRows - i), 1e-6);
    }
  }
}

TEST(H2o, ScoresWhatKvpressScores) {
  double sum = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<float> scores =
        golden::Layer().scores_by(make_h2o, {{"observed", "true"}}, 0, kv_head);
    EXPECT_NEAR(kv_head == 0 ? scores[5] : scores[7], kv_head == 0 ? 0.077597 : 0.071743, 1e-6);
    sum = std::accumulate(scores.begin(), scores.end(), sum);
  }
  EXPECT_NEAR(sum, 3.205894, 1e-5);
}

// Rows that attention does not see have no part in what the others get.
TEST(AttentionScores, AreThoseOfTheVisibleRowsAlone) {
  const Case c{64, 4, 2, 300};
  std::vector<TinyHead> heads = c.heads(9);
  std::vector<TinyHead> kept;
  std::mt19937 random(10);
  for (TinyHead& head : heads) {
    head.hidden.assign(head.positions.size(), cache::kHidden);
    for (const int slot : test::random_slots(random, c.n_rows, 120)) {
      head.hidden[static_cast<size_t>(slot)] = cache::kVisible;
    }
    kept.push_back(head.compacted());
  }
  TinyLayer masked(heads);
  TinyLayer compacted(kept);
  for (TinyLayer* layer : {&masked, &compacted}) {
    layer->set_queries(c.queries(11), c.n_heads, 64, c.scale());
  }
  for (const auto make : {make_snapkv, make_tova}) {
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const std::vector<float> all = masked.scores_by(make, {}, 0, kv_head);
      std::vector<float> visible;
      for (size_t slot = 0; slot < all.size(); ++slot) {
        if (heads[static_cast<size_t>(kv_head)].hidden[slot] == cache::kVisible) {
          visible.push_back(all[slot]);
        }
      }
      EXPECT_EQ(visible, compacted.scores_by(make, {}, 0, kv_head));
    }
  }
}

}  // namespace
}  // namespace winnow::policy
