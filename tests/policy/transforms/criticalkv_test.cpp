#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "policy/golden_fixture.h"
#include "policy/tiny_layer.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

const std::string kSnapkv = ":budget=12,n_sink=0,n_recent=0,obs_window=4,kernel=5,pool=avg";

TEST(Criticalkv, KeepsWhatKvpressKeeps) {
  EXPECT_EQ(golden::kept_by("snapkv+criticalkv" + kSnapkv),
            (KeptSlots{{2, 3, 5, 6, 9, 11, 13, 16, 20, 21, 22, 23},
                       {3, 4, 9, 10, 11, 15, 16, 17, 20, 21, 22, 23}}));
  EXPECT_EQ(golden::kept_by("snapkv+criticalkv+adakv" + kSnapkv),
            (KeptSlots{{2, 3, 5, 6, 9, 11, 13, 15, 16, 17, 20, 21, 22, 23},
                       {3, 9, 10, 11, 16, 17, 20, 21, 22, 23}}));
}

TEST(Criticalkv, AFirstStageOfAllRowsIsTheMethodAlone) {
  EXPECT_EQ(golden::kept_by("snapkv+criticalkv" + kSnapkv + ",first_stage=1"),
            golden::kept_by("snapkv" + kSnapkv));
  EXPECT_NE(golden::kept_by("snapkv+criticalkv" + kSnapkv + ",first_stage=0"),
            golden::kept_by("snapkv" + kSnapkv));
}

// mean over the query heads h of a group of ||W_h v||_1, in double: [n].
std::vector<double> output_norms(const TinyHead& head, const std::vector<float>& weights,
                                 int n_heads, int first_head, int group_size) {
  const auto dim = static_cast<size_t>(head.head_dim);
  const size_t n_inputs = static_cast<size_t>(n_heads) * dim;
  std::vector<double> norms(head.positions.size(), 0.0);
  for (size_t row = 0; row < norms.size(); ++row) {
    for (int h = first_head; h < first_head + group_size; ++h) {
      for (size_t output = 0; output < weights.size() / n_inputs; ++output) {
        double product = 0;
        for (size_t c = 0; c < dim; ++c) {
          product +=
              static_cast<double>(weights[output * n_inputs + static_cast<size_t>(h) * dim + c]) *
              static_cast<double>(head.values[row * dim + c]);
        }
        norms[row] += std::abs(product) / group_size;
      }
    }
  }
  return norms;
}

// Scores of 1 for all rows leave the choice to the norms, and give them away.
std::vector<float> rescored(const LayerView& view, int kv_head, size_t n) {
  OptionReader reader(std::vector<GivenOption>{{.name = "first_stage", .value = "0"}});
  Scratch scratch;
  const std::vector<float> scores(n, 1.0F);
  std::vector<ScoredHead> heads;
  for (int head = 0; head < std::ssize(view.heads); ++head) {
    heads.push_back(
        {.layer = &view, .kv_head = head, .scores = scores, .slots = {}, .keep_anyway = {}});
  }
  std::vector<float> result(n);
  EXPECT_EQ(make_criticalkv(reader)->rescore(heads, kv_head, 1, scratch, result), 1);
  return result;
}

TEST(Criticalkv, MultipliesByTheMeanNormOfTheOutput) {
  std::mt19937 random(11);
  for (const int head_dim : {8, 20, 64}) {
    for (const int n : {50, 481, 1100}) {  // less than a block of rows, one more, several
      std::vector<TinyHead> heads;
      for (unsigned head = 0; head < 2; ++head) {
        heads.push_back(TinyHead::random(n, head + 1, head_dim));
      }
      constexpr int kGroup = 3;
      constexpr int kHeads = 6;
      constexpr size_t kEmbd = 37;
      TinyLayer layer(heads);
      layer.set_queries(std::vector<float>(static_cast<size_t>(kHeads * head_dim), 1.0F), kHeads, 1,
                        0.5F, n - 1);
      const std::vector<float> weights =
          test::random_floats(random, kEmbd * static_cast<size_t>(kHeads * head_dim));
      layer.set_output_weights(weights);
      for (int head = 0; head < 2; ++head) {
        const std::vector<double> norms =
            output_norms(heads[static_cast<size_t>(head)], weights, kHeads, head * kGroup, kGroup);
        const std::vector<float> scores = rescored(layer.view(), head, static_cast<size_t>(n));
        for (size_t i = 0; i < norms.size(); ++i) {
          ASSERT_NEAR(static_cast<double>(scores[i]) / (norms[i] * 1.0001), 1.0, 1e-5)
              << head_dim << ", " << n << ", row " << i;
        }
      }
    }
  }
}

// A row that is noted is not computed again, one that is not is computed as it would be among any others.
TEST(Criticalkv, NotesNormsBesideTheRows) {
  constexpr size_t kRows = 300;
  const TinyLayer layer({TinyHead::random(kRows, 3), TinyHead::random(kRows, 4)});
  const LayerView plain = layer.view();
  const std::vector<float> expected = rescored(plain, 1, kRows);

  std::vector<float> noted(kRows, cache::kUnknownNorm);
  std::vector<cache::HeadRows> heads(plain.heads.begin(), plain.heads.end());
  heads[1].output_norms = noted.data();
  LayerView view = plain;
  view.heads = heads;
  EXPECT_EQ(rescored(view, 1, kRows), expected);
  EXPECT_EQ(std::ranges::count(noted, cache::kUnknownNorm), 0);

  noted[7] = 1000.0F;
  noted[200] = cache::kUnknownNorm;
  const std::vector<float> again = rescored(view, 1, kRows);
  EXPECT_FLOAT_EQ(again[7], 1000.0F * 1.0001F);
  EXPECT_EQ(again[200], expected[200]);
  EXPECT_EQ(again[299], expected[299]);
}

TEST(Criticalkv, NormsOfTheFixtureAreThePublishedOnes) {
  const golden::Layer layer;
  double sum = 0;
  for (int head = 0; head < golden::kKvHeads; ++head) {
    const std::vector<float> scores = rescored(layer.view(), head, golden::kRows);
    for (const float score : scores) {
      sum += static_cast<double>(score) / 1.0001;
    }
    const double published = head == 0 ? 16.285360 : 16.565657;
    EXPECT_NEAR(static_cast<double>(scores[head == 0 ? 0 : 3]) / 1.0001, published, 1e-4);
  }
  EXPECT_NEAR(sum, 1115.524505, 1e-2);
}

}  // namespace
}  // namespace winnow::policy
