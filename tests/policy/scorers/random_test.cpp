#include <gtest/gtest.h>

#include <numeric>

#include "policy/methods.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

TinyHead head_of(int n_rows) {
  return TinyHead::with_norms(std::vector<float>(static_cast<size_t>(n_rows)));
}

std::vector<Slots> kept(const std::string& spec, int n_rows, int layer = 0) {
  const Policy policy = Policy::parse(spec);
  const TinyLayer rows({head_of(n_rows), head_of(n_rows)}, layer);
  return rows.kept_by(policy);
}

TEST(Random, RepeatsWithTheSameSeed) {
  EXPECT_EQ(kept("random:budget=50", 200), kept("random:budget=50,seed=0", 200));
}

TEST(Random, DiffersBySeedLayerAndHead) {
  const std::vector<Slots> first = kept("random:budget=50", 200);
  EXPECT_NE(first, kept("random:budget=50,seed=1", 200));
  EXPECT_NE(first, kept("random:budget=50", 200, 1));
  EXPECT_NE(first[0], first[1]);
}

TEST(Random, KeepsEveryPartOfTheInputAlike) {
  // Rows kept of each quarter of 400 positions; 2 heads and 100 seeds keep 100 each.
  Slots per_quarter(4);
  for (int seed = 0; seed < 100; ++seed) {
    for (const Slots& slots :
         kept("random:budget=100,n_sink=0,n_recent=0,seed=" + std::to_string(seed), 400)) {
      for (const int slot : slots) {
        ++per_quarter[static_cast<size_t>(slot / 100)];
      }
    }
  }
  for (const int n_kept : per_quarter) {
    EXPECT_NEAR(n_kept, 5000, 250);  // four standard deviations
  }
}

TEST(Random, WorthIsBetweenZeroAndOne) {
  OptionReader reader;
  const std::unique_ptr<Scorer> scorer = make_random(reader);
  const TinyLayer layer({head_of(10000)});
  std::vector<float> scores(10000);
  Scratch scratch;
  scorer->score(layer.view(), 0, scratch, scores);
  EXPECT_GE(*std::min_element(scores.begin(), scores.end()), 0.0F);
  EXPECT_LT(*std::max_element(scores.begin(), scores.end()), 1.0F);
  EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0F) / 10000, 0.5F, 0.015F);
}

}  // namespace
}  // namespace winnow::policy
