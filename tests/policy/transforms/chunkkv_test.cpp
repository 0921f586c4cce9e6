#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "policy/golden_fixture.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

TEST(Chunkkv, KeepsWhatKvpressKeeps) {
  const std::string snapkv =
      "snapkv+chunkkv:budget=12,n_sink=0,n_recent=0,obs_window=4,kernel=5,pool=avg,chunk=5";
  const Slots nine{10, 11, 12, 13, 14, 20, 21, 22, 23};
  EXPECT_EQ(golden::kept_by(snapkv + ",shared_chunks=true,whole_chunks=true"),
            (KeptSlots{nine, nine}));
  // Exact counts: the same chunks, and three more rows of the next one.
  for (const Slots& kept : golden::kept_by(snapkv + ",shared_chunks=true")) {
    EXPECT_EQ(kept.size(), 12U);
    EXPECT_TRUE(std::ranges::includes(kept, nine));
    Slots others;
    std::ranges::set_difference(kept, nine, std::back_inserter(others));
    EXPECT_EQ(others.front() / 5, others.back() / 5);
  }
}

TEST(Chunkkv, ByHand) {
  // Chunks of 3 have the mean norms 4, 2, 5 and the last, of two rows, 1.
  const TinyLayer layer({TinyHead::with_norms({1, 9, 2, 2, 1, 3, 5, 5, 5, 1, 1})});
  const auto kept = [&](int budget, const std::string& more = {}) {
    return layer
        .kept_by(Policy::parse(
            "knorm+chunkkv:chunk=3,n_sink=0,n_recent=0,budget=" + std::to_string(budget) + more))
        .at(0);
  };
  EXPECT_EQ(kept(1), (Slots{9}));
  EXPECT_EQ(kept(2), (Slots{9, 10}));
  EXPECT_EQ(kept(3), (Slots{4, 9, 10}));
  EXPECT_EQ(kept(5), (Slots{3, 4, 5, 9, 10}));
  EXPECT_EQ(kept(7), (Slots{0, 2, 3, 4, 5, 9, 10}));  // row 1 is the worst of the third chunk
  EXPECT_EQ(kept(7, ",whole_chunks=true"), (Slots{3, 4, 5, 9, 10}));
  EXPECT_EQ(kept(1, ",whole_chunks=true"), (Slots{9}));
  // What is kept anyway counts inside: the first row and the last two leave four.
  EXPECT_EQ(layer.kept_by(Policy::parse("knorm+chunkkv:chunk=3,n_sink=1,n_recent=2,budget=7")),
            (KeptSlots{{0, 2, 3, 4, 5, 9, 10}}));
}

// The rows that stay, found by taking one after the other.
Slots taken_one_by_one(const std::vector<TinyHead>& heads, size_t of, int budget, int chunk,
                       bool is_shared) {
  const auto mean = [&](const TinyHead& head, int number) {
    double sum = 0;
    int n = 0;
    for (size_t i = 0; i < head.norms.size(); ++i) {
      if (head.positions[i] / chunk == number) {
        sum -= static_cast<double>(head.norms[i]);
        ++n;
      }
    }
    return n > 0 ? sum / n : 0.0;
  };
  std::vector<int> numbers;
  for (const int position : heads[of].positions) {
    if (numbers.empty() || numbers.back() != position / chunk) {
      numbers.push_back(position / chunk);
    }
  }
  std::ranges::stable_sort(numbers, std::greater(), [&](int number) {
    double worth = mean(heads[of], number);
    for (size_t other = 0; is_shared && other < heads.size(); ++other) {
      worth += other == of ? 0 : mean(heads[other], number);
    }
    return worth;
  });
  Slots kept;
  for (const int number : numbers) {
    Slots rows;
    for (size_t i = 0; i < heads[of].positions.size(); ++i) {
      if (heads[of].positions[i] / chunk == number) {
        rows.push_back(static_cast<int>(i));
      }
    }
    std::ranges::stable_sort(rows, {},
                             [&](int i) { return heads[of].norms[static_cast<size_t>(i)]; });
    rows.resize(std::min(rows.size(), static_cast<size_t>(budget) - kept.size()));
    kept.insert(kept.end(), rows.begin(), rows.end());
  }
  std::ranges::sort(kept);
  return kept;
}

TEST(Chunkkv, TakesChunksInOrderOfTheirMeansAndRowsOfTheLast) {
  std::mt19937 random(5);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<TinyHead> heads;
    for (int head = 0; head < 3; ++head) {
      std::vector<float> norms(static_cast<size_t>(draw(32, 60)));
      for (float& norm : norms) {
        norm = static_cast<float>(draw(0, 4));  // ties
      }
      heads.push_back(TinyHead::with_norms(norms));
      for (size_t i = 1; i < norms.size(); ++i) {  // gaps
        heads.back().positions[i] = heads.back().positions[i - 1] + draw(1, 3);
      }
    }
    const int chunk = draw(1, 3) == 1 ? 4 : 8;  // means of few small integers over powers of two
    const int budget = draw(1, 29);
    const bool is_shared = draw(0, 1) == 1;
    if (is_shared) {  // full chunks, so that the sums of their means are exact
      for (TinyHead& head : heads) {
        std::iota(head.positions.begin(), head.positions.end(), 0);
        head.positions.resize(32);
        head.norms.resize(32);
        head.mass.resize(32);
      }
    }
    const KeptSlots kept = TinyLayer(heads).kept_by(Policy::parse(
        "knorm+chunkkv:n_sink=0,n_recent=0,budget=" + std::to_string(budget) +
        ",chunk=" + std::to_string(chunk) + ",shared_chunks=" + (is_shared ? "true" : "false")));
    for (size_t head = 0; head < heads.size(); ++head) {
      ASSERT_EQ(kept[head], taken_one_by_one(heads, head, budget, chunk, is_shared))
          << "budget " << budget << ", chunk " << chunk << ", shared " << is_shared;
    }
  }
}

TEST(Chunkkv, ChunksOfOneRowAreTheRowsThemselves) {
  const TinyLayer layer({TinyHead::random(100, 1), TinyHead::random(90, 2)});
  EXPECT_EQ(layer.kept_by(Policy::parse("snapkv+chunkkv+adakv:budget=40,chunk=1,obs_window=8")),
            layer.kept_by(Policy::parse("snapkv+adakv:budget=40,obs_window=8")));
}

TEST(Chunkkv, SharedChunksOfFullWidthAreTheSameForAllHeads) {
  const TinyLayer layer(
      {TinyHead::random(64, 1), TinyHead::random(64, 2), TinyHead::random(64, 3)});
  const KeptSlots kept = layer.kept_by(
      Policy::parse("keydiff+chunkkv:budget=32,n_sink=0,n_recent=0,chunk=8,shared_chunks=true"));
  EXPECT_EQ(kept[0], kept[1]);
  EXPECT_EQ(kept[0], kept[2]);
  EXPECT_EQ(kept[0].size(), 32U);
}

TEST(Chunkkv, ScoresThatAreNotNumbersArePassedOverAndCounted) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const TinyLayer layer({TinyHead::with_norms({kNan, kNan, 1, kNan, 5, 5, 6, 6})});
  kernels::ParallelFor parallel(1);
  Choice choice;
  const LayerView view = layer.view();
  ASSERT_TRUE(Policy::parse("knorm+chunkkv:budget=3,n_sink=0,n_recent=0,chunk=2")
                  .choose(std::span(&view, 1), parallel, choice));
  EXPECT_EQ(choice.kept, (KeptSlots{{2, 3, 4}}));
  EXPECT_EQ(choice.n_nan_scores(), 3);
}

}  // namespace
}  // namespace winnow::policy
