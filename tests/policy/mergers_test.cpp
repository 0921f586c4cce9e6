// What rows that go leave to those that stay, against published sums and plain loops in double precision.

#include "policy/mergers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/random.h"
#include "kernels/attend.h"
#include "policy/golden_fixture.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

using Values = std::map<int, std::vector<double>>;  // of the slots that changed

Values merged_by(const std::string& spec, const LayerView& layer, int kv_head,
                 const std::vector<int>& kept) {
  const Policy policy = Policy::parse(spec);
  Scratch scratch;
  const Scratch::Frame frame(scratch);
  const NewRows merged = policy.merge(layer, kv_head, kept, scratch);
  Values values;
  const size_t dim = merged.rows.empty() ? 0 : merged.values.size() / merged.rows.size();
  for (size_t i = 0; i < merged.rows.size(); ++i) {
    const auto value = merged.values.subspan(i * dim, dim);
    values[kept[static_cast<size_t>(merged.rows[i])]] = {value.begin(), value.end()};
  }
  EXPECT_TRUE(std::ranges::is_sorted(merged.rows));
  EXPECT_EQ(values.size(), merged.rows.size());
  return values;
}

std::vector<double> row_of(const std::vector<float>& rows, int slot, int dim) {
  const auto first = rows.begin() + std::ptrdiff_t{slot} * dim;
  return {first, first + dim};
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

double norm(const std::vector<double>& a) {
  return std::sqrt(dot(a, a));
}

void expect_near(const Values& values, const Values& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (const auto& [slot, value] : expected) {
    ASSERT_TRUE(values.contains(slot)) << slot;
    for (size_t i = 0; i < value.size(); ++i) {
      EXPECT_NEAR(values.at(slot)[i], value[i], 1e-5) << slot;
    }
  }
}

// A head, the slots that it keeps, and those that it loses.
struct Split {
  TinyHead head;
  std::vector<int> kept;
  std::vector<int> lost;
};

Split random_split(unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  const int n = draw(2, 120);
  Split split{.head = TinyHead::random(n, seed, 4 * draw(1, 9)), .kept = {}, .lost = {}};
  for (int slot = 0; slot < n; ++slot) {
    split.head.positions[static_cast<size_t>(slot)] = 3 * slot;
    split.head.mass[static_cast<size_t>(slot)] = draw(0, 1000);
    const bool is_hidden = draw(0, 9) == 0;
    split.head.hidden.push_back(is_hidden ? cache::kHidden : cache::kVisible);
    if (!is_hidden) {
      (draw(0, 2) == 0 ? split.kept : split.lost).push_back(slot);
    }
  }
  return split;
}

std::vector<int> silenced_by(const std::string& options, const LayerView& layer, int kv_head,
                             const std::vector<int>& kept) {
  const Policy policy =
      Policy::parse("streaming+think:budget=4,n_sink=0,n_recent=0,think_channels=" + options);
  Scratch scratch;
  const Scratch::Frame frame(scratch);
  const NewRows changed = policy.merge(layer, kv_head, kept, scratch);
  EXPECT_TRUE(changed.values.empty());
  std::vector<int> channels(changed.silent_channels.begin(), changed.silent_channels.end());
  std::ranges::sort(channels);
  return channels;
}

TEST(Think, AgreesWithThePublishedChannels) {
  const golden::Layer layer;
  Scratch scratch;
  std::vector<int> all(golden::kRows);
  std::iota(all.begin(), all.end(), 0);
  OptionReader reader(std::vector<GivenOption>{
      {"think_channels", "0.5"}, {"think_queries", "4"}, {"think_recent", "0"}});
  const auto think = make_think(reader);
  const std::vector<std::vector<int>> expected{{0, 1, 2, 6}, {0, 2, 3, 7}};
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const LayerView view = layer.view();
    const NewRows changed =
        think->merge({.layer = view, .kv_head = kv_head, .kept = all, .lost = {}}, scratch);
    std::vector<int> channels(changed.silent_channels.begin(), changed.silent_channels.end());
    std::ranges::sort(channels);
    EXPECT_EQ(channels, expected[static_cast<size_t>(kv_head)]);
    EXPECT_EQ(changed.rows.size(), all.size());
  }
}

TEST(Think, ChannelsThatAreSilentComeFirstAndTheNewestRowsStayWhole) {
  golden::Layer layer;
  std::vector<int> kept{0, 3, 5, 8, 13, 21};
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<int> some = silenced_by("0.25,think_recent=2", layer.view(), kv_head, kept);
    const std::vector<int> more = silenced_by("0.75,think_recent=2", layer.view(), kv_head, kept);
    EXPECT_EQ(some.size(), 2U);
    EXPECT_EQ(more.size(), 6U);
    EXPECT_TRUE(std::ranges::includes(more, some));
    EXPECT_TRUE(silenced_by("0", layer.view(), kv_head, kept).empty());
  }
  const Policy policy = Policy::parse(
      "streaming+think:budget=4,n_sink=0,n_recent=0,think_recent=2,think_channels=0.5");
  Scratch scratch;
  const NewRows changed = policy.merge(layer.view(), 0, kept, scratch);
  EXPECT_EQ(std::vector<int>(changed.rows.begin(), changed.rows.end()),
            (std::vector<int>{0, 1, 2, 3}));
}

TEST(Think, IsRefusedWhereKeysAreTurnedOrBounded) {
  for (const auto& [spec, reason] :
       {std::pair("knorm+think:budget=64,positions=contiguous", "positions=original"),
        std::pair("knorm+think+quest:budget=64", "no reader can follow")}) {
    const std::string message =
        test::error_of(ErrorCode::kInvalidArgument, [&] { Policy::parse(spec); });
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }
}

TEST(Merge, AgreesWithThePublishedSums) {
  const golden::Layer layer;
  const KeptSlots kept = golden::kept_by("knorm:budget=12,n_sink=0,n_recent=0");
  double sum = 0;
  double key_sum = 0;
  for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
    const std::vector<int>& of_head = kept[static_cast<size_t>(kv_head)];
    const Values merged =
        merged_by("knorm+merge:budget=12,n_sink=0,n_recent=0", layer.view(), kv_head, of_head);
    EXPECT_GT(merged.size(), 3);
    for (const int slot : of_head) {
      const int row = kv_head * golden::kRows + slot;
      const auto value =
          merged.contains(slot) ? merged.at(slot) : row_of(golden::values(), row, golden::kHeadDim);
      sum = std::accumulate(value.begin(), value.end(), sum);
      const auto key = row_of(golden::keys(), row, golden::kHeadDim);
      key_sum = std::accumulate(key.begin(), key.end(), key_sum);
    }
  }
  EXPECT_NEAR(sum, 3.382017, 2e-6);
  EXPECT_NEAR(key_sum, 3.451774, 2e-6);
}

TEST(Merge, AgreesWithPlainLoops) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Split split = random_split(seed);
    const TinyHead& head = split.head;
    const int n_sink = static_cast<int>(seed % 3) * 10;  // positions are multiples of 3
    const double threshold = seed % 2 == 0 ? 0 : 0.3;
    const double fraction = seed % 5 == 0 ? 0.25 : 1;
    struct Gift {
      int from;
      int to;
      double cosine;
    };
    std::vector<Gift> gifts;
    for (const int e : split.lost) {
      Gift best{e, -1, -2};
      const auto key = row_of(head.keys, e, head.head_dim);
      for (const int t : split.kept) {
        const auto other = row_of(head.keys, t, head.head_dim);
        const double cosine = dot(key, other) / norm(key) / norm(other);
        if (head.positions[static_cast<size_t>(t)] >= n_sink && cosine > best.cosine) {
          best = {e, t, cosine};
        }
      }
      gifts.push_back(best);
    }
    std::ranges::stable_sort(gifts, std::ranges::greater(), &Gift::cosine);
    gifts.resize(static_cast<size_t>(std::ceil(fraction * static_cast<double>(gifts.size()))));
    Values expected;
    std::map<int, double> totals;
    for (const Gift& gift : gifts) {
      if (gift.to < 0 || gift.cosine < threshold) {
        continue;
      }
      const auto own = row_of(head.values, gift.from, head.head_dim);
      const auto other = row_of(head.values, gift.to, head.head_dim);
      const double weight = gift.cosine * norm(own) / (norm(own) + norm(other) + 1e-6);
      auto& sum = expected.try_emplace(gift.to, other).first->second;
      totals.try_emplace(gift.to, 1).first->second += weight;
      for (size_t i = 0; i < sum.size(); ++i) {
        sum[i] += weight * own[i];
      }
    }
    for (auto& [slot, sum] : expected) {
      for (double& element : sum) {
        element /= totals[slot];
      }
    }
    const TinyLayer layer({head});
    expect_near(merged_by("knorm+merge:budget=100,n_recent=0,n_sink=" + std::to_string(n_sink) +
                              ",merge_threshold=" + (seed % 2 == 0 ? "0" : "0.3") +
                              ",merge_fraction=" + (seed % 5 == 0 ? "0.25" : "1"),
                          layer.view(), 0, split.kept),
                expected);
  }
}

TEST(Cam, AgreesWithPlainLoops) {
  int n_dropped = 0;
  int n_merged = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Split split = random_split(seed);
    const TinyHead& head = split.head;
    const size_t n_rows = seed % 2 == 0 ? 32 : 3;
    const auto mass = [&](int slot) {
      return static_cast<double>(head.mass[static_cast<size_t>(slot)]);
    };
    std::map<int, int> best;  // of the rows that go before one that stays
    for (const int e : split.lost) {
      const auto next = std::ranges::upper_bound(split.kept, e);
      if (next != split.kept.end()) {
        const int of_gap = best.try_emplace(*next, e).first->second;
        best[*next] = mass(e) > mass(of_gap) ? e : of_gap;
      }
    }
    Values expected;
    for (const auto& [next, e] : best) {
      std::vector<int> takers;
      double sum = 0;
      for (const int t : split.kept) {
        if (t > e && takers.size() < n_rows) {
          takers.push_back(t);
          sum += mass(t);
        }
      }
      const double p = std::min(1.0, mass(e) / (sum / static_cast<double>(takers.size())));
      uint64_t hash = splitmix64((uint64_t{1} << 32) + 5);
      for (const int value : {0, 0, head.positions[static_cast<size_t>(e)]}) {
        hash = splitmix64(hash ^ static_cast<uint32_t>(value));
      }
      const bool is_merged = std::ldexp(static_cast<double>(hash >> 40), -24) < p;
      (is_merged ? n_merged : n_dropped) += 1;
      for (const int t : takers) {
        if (is_merged) {
          auto& value =
              expected.try_emplace(t, row_of(head.values, t, head.head_dim)).first->second;
          const auto own = row_of(head.values, e, head.head_dim);
          for (size_t i = 0; i < value.size(); ++i) {
            value[i] += own[i] / static_cast<double>(takers.size());
          }
        }
      }
    }
    const TinyLayer layer({head});
    expect_near(merged_by("knorm+cam:budget=100,n_sink=0,n_recent=0,cam_seed=5,cam_rows=" +
                              std::to_string(n_rows),
                          layer.view(), 0, split.kept),
                expected);
  }
  EXPECT_GT(n_merged, 200);
  EXPECT_GT(n_dropped, 50);
}

TEST(Cam, GivesToTheMostSimilarAsPlainLoopsDo) {
  int n_merged = 0;
  int n_dropped = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Split split = random_split(seed);
    const TinyHead& head = split.head;
    const int n_sink = static_cast<int>(seed % 3) * 10;  // positions are multiples of 3
    Values expected;
    for (const int e : split.lost) {
      const auto key = row_of(head.keys, e, head.head_dim);
      double best = 0;
      int taker = -1;
      for (const int t : split.kept) {
        const auto other = row_of(head.keys, t, head.head_dim);
        const double cosine = dot(key, other) / norm(key) / norm(other);
        if (head.positions[static_cast<size_t>(t)] >= n_sink && cosine > best) {
          best = cosine;
          taker = t;
        }
      }
      if (taker < 0) {
        continue;
      }
      const auto mass = [&](int slot) {
        return static_cast<double>(head.mass[static_cast<size_t>(slot)]);
      };
      uint64_t hash = splitmix64((uint64_t{1} << 32) + 5);
      for (const int value : {0, 0, head.positions[static_cast<size_t>(e)]}) {
        hash = splitmix64(hash ^ static_cast<uint32_t>(value));
      }
      const double p = mass(e) >= mass(taker) ? 1 : mass(e) / mass(taker);
      const bool is_merged = std::ldexp(static_cast<double>(hash >> 40), -24) < p;
      (is_merged ? n_merged : n_dropped) += 1;
      if (is_merged) {
        auto& value =
            expected.try_emplace(taker, row_of(head.values, taker, head.head_dim)).first->second;
        const auto own = row_of(head.values, e, head.head_dim);
        for (size_t i = 0; i < value.size(); ++i) {
          value[i] = (1 - best) * value[i] + best * own[i];
        }
      }
    }
    const TinyLayer layer({head});
    expect_near(merged_by("knorm+cam:budget=100,n_recent=0,cam_seed=5,cam_to=similar,n_sink=" +
                              std::to_string(n_sink),
                          layer.view(), 0, split.kept),
                expected);
  }
  EXPECT_GT(n_merged, 200);
  EXPECT_GT(n_dropped, 50);
}

TEST(Folds, GoFromRowToRowInOrder) {
  const TinyHead head = TinyHead::random(10, 1, 4);
  const std::vector<int> kept{2, 5, 9};
  // 7 takes half of 3, then leaves a quarter of itself to 5; 1 goes to one that goes.
  const std::vector<Fold> folds{{3, 7, 0.5F}, {7, 5, 0.25F}, {1, 4, 1.0F}};
  Scratch scratch;
  const NewRows found = apply_folds(head.rows({}), kept, folds, scratch);
  ASSERT_EQ(found.rows.size(), 1);
  EXPECT_EQ(found.rows[0], 1);
  for (int c = 0; c < 4; ++c) {
    const auto v = [&](int slot) { return head.values[static_cast<size_t>(slot * 4 + c)]; };
    EXPECT_NEAR(found.values[static_cast<size_t>(c)],
                0.75F * v(5) + 0.25F * (0.5F * v(7) + 0.5F * v(3)), 1e-6F);
  }
  EXPECT_TRUE(apply_folds(head.rows({}), kept, {}, scratch).rows.empty());
}

TEST(Folds, LeaveOutWhatIsNotFinite) {
  TinyHead head = TinyHead::random(10, 1, 4);
  head.values[3 * 4] = std::numeric_limits<float>::infinity();
  head.values[5 * 4] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<int> kept{2, 5, 9};
  const std::vector<Fold> folds{{3, 2, 0.5F}, {4, 5, 0.5F}, {6, 9, 0.5F}};
  Scratch scratch;
  const NewRows found = apply_folds(head.rows({}), kept, folds, scratch);
  ASSERT_EQ(found.rows.size(), 1);
  EXPECT_EQ(found.rows[0], 2);
}

TEST(Cam, DrawsAreNotThoseOfRandom) {
  // Rows whose random scores are lowest go. Of those of a gap one may be merged, and half of these are, as their attention
  // says.
  const int n = 2000;
  TinyHead head = TinyHead::random(n, 1, 4);
  std::ranges::fill(head.mass, 10);
  Split split{.head = head, .kept = {}, .lost = {}};
  const TinyLayer scored({head});
  const KeptSlots kept = scored.kept_by(Policy::parse("random:budget=1000,n_sink=0,n_recent=0"));
  split.kept = kept[0];
  const std::set<int> stays(split.kept.begin(), split.kept.end());
  for (int slot = 0; slot < n; ++slot) {
    if (!stays.contains(slot)) {
      head.mass[static_cast<size_t>(slot)] = 5;
      split.lost.push_back(slot);
    }
  }
  const std::vector<float> ones(head.values.size(), 1.0F);
  head.values = ones;
  const TinyLayer layer({head});
  int n_gaps = 0;
  for (const int slot : split.kept) {
    n_gaps += slot > 0 && !stays.contains(slot - 1) ? 1 : 0;
  }
  double gained = 0;
  for (const auto& [slot, value] :
       merged_by("random+cam:budget=1000,n_sink=0,n_recent=0", layer.view(), 0, split.kept)) {
    gained += value[0] - 1;
  }
  EXPECT_GT(n_gaps, 400);
  EXPECT_NEAR(gained, 0.5 * n_gaps, 2.0 * std::sqrt(n_gaps));  // four standard deviations
}

TEST(Mergers, WhatIsNotFiniteNeitherGivesNorTakes) {
  for (const std::string name : {"merge", "cam"}) {
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      TinyHead head = TinyHead::random(40, 3, 8);
      std::ranges::fill(head.mass, 10);
      std::vector<int> kept;
      for (int slot = 1; slot < 40; slot += 2) {
        kept.push_back(slot);
      }
      head.values[4 * 8 + 1] = bad;  // goes
      head.values[7 * 8 + 2] = bad;  // stays
      if (name == "merge") {
        head.keys[10 * 8 + 3] = bad;
        head.keys[13 * 8 + 3] = bad;
      }
      TinyLayer layer({head});
      LayerView view = layer.view();
      std::vector<cache::HeadRows> rows(view.heads.begin(), view.heads.end());
      rows[0].has_nonfinite_values = true;
      view.heads = rows;
      const Values merged =
          merged_by("knorm+" + name + ":budget=100,n_sink=0,n_recent=0", view, 0, kept);
      EXPECT_GT(merged.size(), 5) << name;
      EXPECT_FALSE(merged.contains(7)) << name;
      EXPECT_FALSE(name == "merge" && merged.contains(13));
      for (const auto& [slot, value] : merged) {
        for (const double element : value) {
          EXPECT_TRUE(std::isfinite(element)) << name << " " << slot;
        }
      }
    }
  }
}

TEST(Mergers, WithoutLossesNothingChanges) {
  const TinyLayer layer({TinyHead::random(30, 1)});
  std::vector<int> all(30);
  std::iota(all.begin(), all.end(), 0);
  for (const char* spec : {"knorm+merge:budget=40", "knorm+cam:budget=40", "knorm:budget=40"}) {
    EXPECT_TRUE(merged_by(spec, layer.view(), 0, all).empty());
  }
  EXPECT_TRUE(merged_by("knorm:budget=10,n_recent=0", layer.view(), 0, {1, 5, 9}).empty());
  // None that stays comes after what goes, and sinks take nothing.
  EXPECT_TRUE(merged_by("knorm+cam:budget=10,n_recent=0", layer.view(), 0, {0, 1, 2}).empty());
  EXPECT_TRUE(merged_by("knorm+merge:budget=10,n_recent=0", layer.view(), 0, {0, 1, 2}).empty());
  EXPECT_TRUE(merged_by("knorm+merge:budget=10,n_recent=0", layer.view(), 0, {}).empty());
}

TEST(Mergers, AreParsedAndPrintedLikeOtherParts) {
  EXPECT_EQ(Policy::parse("snapkv+merge+adakv:budget=100,merge_threshold=0.5").spec(),
            "snapkv+adakv+merge:budget=100,merge_threshold=0.5");
  EXPECT_TRUE(Policy::parse("knorm+cam:budget=64").needs().column_mass);
  EXPECT_FALSE(Policy::parse("knorm:budget=64").merges());
  const auto refusal = [](const char* spec) {
    return test::error_of(ErrorCode::kInvalidArgument, [&] { Policy::parse(spec); });
  };
  EXPECT_NE(refusal("knorm+merge+cam:budget=64").find("'merge' and 'cam' both decide"),
            std::string::npos);
  EXPECT_NE(refusal("merge:budget=64").find("is a merger and stands after a method"),
            std::string::npos);
  EXPECT_NE(refusal("knorm+merg:budget=64").find("'merge'"), std::string::npos);
  EXPECT_NE(refusal("full+merge").find("nothing for 'merge' to do"), std::string::npos);
  EXPECT_NE(refusal("knorm+merge:budget=64,merge_threshold=2").find("0 to 1"), std::string::npos);
}

}  // namespace
}  // namespace winnow::policy
