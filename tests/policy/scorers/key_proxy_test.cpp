// The methods @proxy, against lists that rows are added to and taken from, one by one and in double precision.

#include "policy/key_proxy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "cache/cache.h"
#include "engine/evict.h"
#include "kernels/append.h"
#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"
#include "support/random_rows.h"

namespace winnow::policy {
namespace {

constexpr int kDim = 8;
constexpr float kScale = 0.35F;
using Vector = std::vector<double>;

// What the header blocks of the methods say, of one head.
struct Rules {
  int budget = 0;
  int n_sink = 0;
  int n_recent = 0;
  double decay = 1;
  int chunk = 1;
  bool is_memoryless = false;
  double tau = 0;
  int seed = 0;
  bool drops_one = false;  // of a chunk
  bool folds = false;      // by similarity, always
};

struct Held {
  int pos;
  double sum;
  Vector value;
};

double dot(const float* a, const float* b) {
  return std::inner_product(a, a + kDim, b, 0.0, std::plus<>(), [](float x, float y) {
    return static_cast<double>(x) * static_cast<double>(y);
  });
}

// keys, values [n, kDim]. is_clear: no two rows came so near each other that rounding may have decided.
std::vector<Held> plain_steps(const Rules& rules, const std::vector<float>& keys,
                              const std::vector<float>& values, bool& is_clear) {
  const auto key = [&](int pos) { return keys.data() + std::ptrdiff_t{pos} * kDim; };
  std::vector<Held> held;
  is_clear = true;
  for (int t = 0; t < std::ssize(keys) / kDim; ++t) {
    double total = 0;
    std::vector<double> weights;
    for (const Held& row : held) {
      weights.push_back(std::exp(dot(key(t), key(row.pos)) * static_cast<double>(kScale)));
      total += weights.back();
    }
    for (size_t i = 0; i < held.size(); ++i) {
      held[i].sum = rules.decay * held[i].sum + weights[i] / total;
    }
    const float* const v = values.data() + std::ptrdiff_t{t} * kDim;
    held.push_back({t, held.empty() ? 1.0 : 0.0, Vector(v, v + kDim)});
    while (std::ssize(held) > rules.budget) {
      const size_t end = held.size() - static_cast<size_t>(rules.n_recent);
      const auto first = static_cast<size_t>(
          std::ranges::count_if(held, [&](const Held& row) { return row.pos < rules.n_sink; }));
      std::vector<std::pair<double, size_t>> chunks;
      for (size_t begin = first; begin < end; begin += static_cast<size_t>(rules.chunk)) {
        double sum = 0;
        const size_t last = std::min(end, begin + static_cast<size_t>(rules.chunk));
        for (size_t i = begin; i < last; ++i) {
          const double worth = rules.is_memoryless ? dot(key(t), key(held[i].pos)) : held[i].sum;
          sum += worth + (rules.tau > 0 ? rules.tau * frozen_gumbel(rules.seed, held[i].pos) : 0);
        }
        chunks.emplace_back(sum / static_cast<double>(last - begin), begin);
      }
      std::ranges::stable_sort(chunks, {}, [](const auto& chunk) { return chunk.first; });
      is_clear &= chunks.size() < 2 || chunks[0].first == chunks[1].first ||
                  chunks[1].first - chunks[0].first > 1e-5;
      size_t begin = chunks[0].second;
      if (rules.folds) {
        const Held& leaving = held[begin];
        double best = -2;
        size_t taker = 0;
        for (size_t i = 0; i < held.size(); ++i) {
          const float* const own = key(leaving.pos);
          const float* const other = key(held[i].pos);
          const double cosine = dot(own, other) / std::sqrt(dot(own, own) * dot(other, other));
          if (i != begin && held[i].pos >= rules.n_sink && cosine > best) {
            best = cosine;
            taker = i;
          }
        }
        const double w = std::clamp(best, 0.0, 1.0);
        for (size_t c = 0; c < kDim; ++c) {
          held[taker].value[c] = (1 - w) * held[taker].value[c] + w * leaving.value[c];
        }
        held[taker].sum += leaving.sum;
      }
      size_t last = std::min(end, begin + static_cast<size_t>(rules.chunk));
      if (rules.drops_one) {
        const auto chunk = std::span(held).subspan(begin, last - begin);
        begin +=
            static_cast<size_t>(std::ranges::min_element(chunk, {}, &Held::sum) - chunk.begin());
        last = begin + 1;
      }
      held.erase(held.begin() + static_cast<std::ptrdiff_t>(begin),
                 held.begin() + static_cast<std::ptrdiff_t>(last));
    }
  }
  return held;
}

// A cache of one layer that a policy cuts whenever rows have come.
class Stream {
 public:
  Stream(const std::string& spec, int n_kv_heads, int max_rows)
      : policy_(Policy::parse(spec)),
        parallel_(1),
        cache_({.n_layers = 1,
                .n_kv_heads = n_kv_heads,
                .head_dim = kDim,
                .key_type = cache::RowType::kF32,
                .value_type = cache::RowType::kF32,
                .max_rows = max_rows,
                .stores_scores = policy_.needs().static_scores(),
                .score_kind = policy_.needs().score_kind()}) {}

  // keys, values [n_kv_heads][n, kDim], of which n_rows come from `first` on.
  void add(const std::vector<std::vector<float>>& keys,
           const std::vector<std::vector<float>>& values, int first, int n_rows) {
    for (int head = 0; head < cache_.shape().n_kv_heads; ++head) {
      const size_t at = static_cast<size_t>(first) * kDim;
      const kernels::NewRows rows{.keys = keys[static_cast<size_t>(head)].data() + at,
                                  .values = values[static_cast<size_t>(head)].data() + at,
                                  .stride = kDim,
                                  .n_rows = n_rows,
                                  .first_pos = first};
      cache_.commit(0, head, n_rows,
                    kernels::append_rows(rows, cache_.shape(), cache_.reserve(0, head, n_rows)));
    }
    cut();
  }

  void cut() {
    std::vector<cache::HeadRows> heads;
    const int n_kv_heads = cache_.shape().n_kv_heads;
    for (int head = 0; head < n_kv_heads; ++head) {
      heads.push_back(cache_.rows(0, head));
    }
    const LayerView layer{
        .layer = 0,
        .heads = heads,
        .attention = {
            .n_heads = n_kv_heads, .n_kv_heads = n_kv_heads, .head_dim = kDim, .scale = kScale}};
    if (!policy_.choose({&layer, 1}, parallel_, choice_)) {
      return;
    }
    for (int head = 0; head < n_kv_heads; ++head) {
      const auto i = static_cast<size_t>(head);
      engine::merge_lost_rows(policy_, layer, head, choice_.kept[i], choice_.folds_of(i),
                              /*is_copied=*/false, scratch_, cache_);
      cache_.keep(0, head, choice_.kept[i]);
    }
  }

  const cache::Cache& cache() const { return cache_; }

 private:
  Policy policy_;
  kernels::ParallelFor parallel_;
  cache::Cache cache_;
  Choice choice_;
  Scratch scratch_;
};

// Values of the visible rows, in order.
std::vector<Vector> values_of(const cache::Cache& cache, int head) {
  const cache::HeadRows rows = cache.rows(0, head);
  std::vector<Vector> values;
  const auto* const elements = reinterpret_cast<const float*>(rows.values);
  for (int slot = 0; slot < rows.n; ++slot) {
    if (!rows.is_evicted(slot)) {
      values.emplace_back(elements + slot * kDim, elements + (slot + 1) * kDim);
    }
  }
  return values;
}

// Returns how many trials rounding cannot have decided.
int expect_plain_steps(const std::string& method, const std::string& options, Rules rules,
                       bool is_exact_budget = true) {
  int n_clear = 0;
  for (unsigned trial = 0; trial < 60 && !testing::Test::HasFailure(); ++trial) {
    std::mt19937 random(trial);
    const auto between = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int n_kv_heads = between(1, 3);
    const int n = between(1, 90);
    rules.n_sink = between(0, 5);
    rules.n_recent = between(0, 6);
    rules.budget = rules.n_sink + rules.n_recent + between(1, 20);
    const std::string spec = method + ":budget=" + std::to_string(rules.budget) +
                             ",n_sink=" + std::to_string(rules.n_sink) +
                             ",n_recent=" + std::to_string(rules.n_recent) + options;
    SCOPED_TRACE(spec + ", n " + std::to_string(n));
    std::vector<std::vector<float>> keys;
    std::vector<std::vector<float>> values;
    for (int head = 0; head < n_kv_heads; ++head) {
      keys.push_back(test::random_floats(random, static_cast<size_t>(n * kDim)));
      values.push_back(test::random_floats(random, static_cast<size_t>(n * kDim)));
    }
    Stream at_once(spec, n_kv_heads, n);
    at_once.add(keys, values, 0, n);
    Stream in_parts(spec, n_kv_heads, n);
    for (int first = 0; first < n;) {
      const int n_rows = std::min(n - first, between(1, 1 + n / 3));
      in_parts.add(keys, values, first, n_rows);
      first += n_rows;
    }
    for (int head = 0; head < n_kv_heads; ++head) {
      bool is_clear = false;
      const auto i = static_cast<size_t>(head);
      const std::vector<Held> expected = plain_steps(rules, keys[i], values[i], is_clear);
      EXPECT_EQ(in_parts.cache().positions(0, head), at_once.cache().positions(0, head));
      if (is_exact_budget) {
        EXPECT_EQ(at_once.cache().n_cached(0, head), std::min(n, rules.budget));
      }
      if (!is_clear) {
        continue;
      }
      ++n_clear;
      std::vector<int32_t> positions;
      for (const Held& row : expected) {
        positions.push_back(row.pos);
      }
      EXPECT_EQ(at_once.cache().positions(0, head), positions);
      if (at_once.cache().positions(0, head) != positions) {
        return n_clear;
      }
      for (const Stream* stream : {&at_once, &in_parts}) {
        const std::vector<Vector> found = values_of(stream->cache(), head);
        for (size_t row = 0; row < found.size(); ++row) {
          for (size_t c = 0; c < kDim; ++c) {
            EXPECT_NEAR(found[row][c], expected[row].value[c], 1e-5);
          }
        }
      }
    }
  }
  return n_clear;
}

TEST(KeyProxy, H2oKeepsWhatPlainStepsKeep) {
  EXPECT_GT(expect_plain_steps("h2o@proxy", "", {.decay = 0.98}), 90);
  EXPECT_GT(expect_plain_steps("h2o@proxy", ",decay=1", {}), 90);
  EXPECT_GT(expect_plain_steps("pyramid@proxy", "", {}), 90);
  EXPECT_GT(expect_plain_steps("squeeze@proxy", "", {}), 90);
}

TEST(KeyProxy, TovaKeepsWhatPlainStepsKeep) {
  EXPECT_GT(expect_plain_steps("tova@proxy", "", {.is_memoryless = true}), 90);
}

TEST(KeyProxy, ChunkkvKeepsWhatPlainStepsKeep) {
  EXPECT_GT(expect_plain_steps("chunkkv@proxy", ",drop_whole=true", {.chunk = 8}, false), 90);
  EXPECT_GT(
      expect_plain_steps("chunkkv@proxy", ",drop_whole=true,chunk_rows=3", {.chunk = 3}, false),
      90);
  EXPECT_GT(expect_plain_steps("chunkkv@proxy", ",chunk_rows=1", {}), 90);
  EXPECT_GT(expect_plain_steps("chunkkv@proxy", ",chunk_rows=4", {.chunk = 4, .drops_one = true}),
            90);
}

TEST(KeyProxy, KeyformerKeepsWhatPlainStepsKeep) {
  EXPECT_GT(expect_plain_steps("keyformer@proxy", ",seed=3", {.tau = 1, .seed = 3}), 90);
  EXPECT_GT(expect_plain_steps("keyformer@proxy", ",tau_init=0", {}), 90);
}

TEST(KeyProxy, CamFoldsWhatPlainStepsFold) {
  EXPECT_GT(expect_plain_steps("cam@proxy", ",gate=false", {.folds = true}), 90);
  EXPECT_GT(expect_plain_steps("cam@proxy", ",merge=drop", {}), 90);
}

TEST(KeyProxy, SnapkvIsTheMeanSoftmaxOfTheLastKeys) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const int n = 1 + static_cast<int>(seed) * 3;
    const TinyHead head = TinyHead::random(n, seed, kDim);
    TinyLayer layer({head});
    layer.set_queries(std::vector<float>(kDim, 1.0F), 1, 1, kScale, n - 1);
    const std::vector<float> found =
        layer.scores_by(make_snapkv_proxy, {{"obs_window", "5"}}, 0, 0);
    Vector expected(static_cast<size_t>(n));
    const int n_asking = std::min(n, 5);
    for (int t = n - n_asking; t < n; ++t) {
      Vector weights;
      for (int j = 0; j < n; ++j) {
        weights.push_back(
            std::exp(static_cast<double>(kScale) * dot(&head.keys[static_cast<size_t>(t * kDim)],
                                                       &head.keys[static_cast<size_t>(j * kDim)])));
      }
      const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
      for (size_t j = 0; j < weights.size(); ++j) {
        expected[j] += weights[j] / total / n_asking;
      }
    }
    for (size_t j = 0; j < expected.size(); ++j) {
      EXPECT_NEAR(static_cast<double>(found[j]), expected[j], 1e-6);
    }
  }
}

// The gate lets nothing pass that has no sum, and everything that has as much as the other.
TEST(KeyProxy, CamMergesAtRandomByWhatRowsAreWorth) {
  std::mt19937 random(5);
  constexpr int kRows = 120;
  const std::vector<std::vector<float>> keys{test::random_floats(random, size_t{kRows} * kDim)};
  const std::vector<std::vector<float>> values{test::random_floats(random, size_t{kRows} * kDim)};
  std::set<std::vector<Vector>> outcomes;
  for (const char* const options : {"", ",seed=1", ",seed=2", ",gate=false", ",merge=drop"}) {
    Stream stream("cam@proxy:budget=40,n_sink=4,n_recent=8" + std::string(options), 1, kRows);
    stream.add(keys, values, 0, kRows);
    outcomes.insert(values_of(stream.cache(), 0));
  }
  EXPECT_EQ(outcomes.size(), 5);
  // Without rows that stay for a while, each goes as it comes, with a sum of 0.
  Stream frozen("cam@proxy:budget=40,n_recent=0", 1, kRows);
  Stream dropped("cam@proxy:budget=40,n_recent=0,merge=drop", 1, kRows);
  frozen.add(keys, values, 0, kRows);
  dropped.add(keys, values, 0, kRows);
  EXPECT_EQ(values_of(frozen.cache(), 0), values_of(dropped.cache(), 0));
}

TEST(KeyProxy, WithoutGraceTheFirstRowsStayForEver) {
  std::mt19937 random(6);
  constexpr int kRows = 100;
  const std::vector<std::vector<float>> keys{test::random_floats(random, size_t{kRows} * kDim)};
  Stream frozen("h2o@proxy:budget=32,n_recent=0", 1, kRows);
  frozen.add(keys, keys, 0, kRows);
  std::vector<int32_t> first(32);
  std::iota(first.begin(), first.end(), 0);
  EXPECT_EQ(frozen.cache().positions(0, 0), first);
  Stream other("h2o@proxy:budget=32,n_recent=16", 1, kRows);
  other.add(keys, keys, 0, kRows);
  EXPECT_NE(other.cache().positions(0, 0), first);
}

TEST(KeyProxy, TrimmedToBeforeAnyCutIsAsIfNoneHadBeen) {
  std::mt19937 random(7);
  constexpr int kRows = 60;
  const std::vector<std::vector<float>> keys{test::random_floats(random, size_t{kRows} * kDim)};
  const std::string spec = "h2o@proxy:budget=20,n_recent=2";
  Stream stream(spec, 1, kRows);
  stream.add(keys, keys, 0, kRows);
  const int n_intact = stream.cache().trim_bounds().intact;
  ASSERT_GT(n_intact, 0);
  const_cast<cache::Cache&>(stream.cache()).trim(n_intact);
  stream.add(keys, keys, n_intact, kRows - n_intact);
  Stream fresh(spec, 1, kRows);
  fresh.add(keys, keys, 0, kRows);
  EXPECT_EQ(stream.cache().positions(0, 0), fresh.cache().positions(0, 0));
}

TEST(KeyProxy, ThePresetSeedHasTheDefaultsOfTheCachesItRepeats) {
  EXPECT_EQ(Policy::parse("h2o@proxy:preset=seed").spec(), "h2o@proxy:budget=512,n_recent=16");
  EXPECT_EQ(Policy::parse("h2o@proxy:h2o_budget=64,h2o_grace=8").spec(),
            "h2o@proxy:budget=64,n_recent=8");
  EXPECT_EQ(Policy::parse("chunkkv@proxy:preset=seed").spec(),
            "chunkkv@proxy:budget=512,n_recent=0,drop_whole=true");
  for (const char* const method : {"tova", "snapkv", "pyramid", "squeeze", "cam", "keyformer"}) {
    const std::string name = std::string(method) + "@proxy";
    EXPECT_EQ(Policy::parse(name + ":preset=seed").spec(), name + ":budget=512,n_recent=0");
  }
  EXPECT_EQ(Policy::parse("h2o@proxy:preset=seed,budget=25%").spec(),
            "h2o@proxy:budget=25%,n_recent=16");
}

// Heads are compared by what is known of their rows.
TEST(KeyProxy, HeadsShareByTheSumsSoFarAndTheNewestKey) {
  const TinyHead head = TinyHead::random(30, 4, kDim);
  TinyLayer layer({head});
  layer.set_queries(std::vector<float>(kDim, 1.0F), 1, 1, kScale, 29);
  const std::vector<float> found = layer.scores_by(make_h2o_proxy, {}, 0, 0);
  EXPECT_NEAR(std::accumulate(found.begin(), found.end(), 0.0), 1, 1e-5);
  std::vector<float> notes(30, 2.0F);
  notes[29] = cache::kNotNoted;
  LayerView view = layer.view();
  std::vector<cache::HeadRows> rows(view.heads.begin(), view.heads.end());
  rows[0].notes = notes.data();
  view.heads = rows;
  std::vector<float> noted(30);
  Scratch scratch;
  OptionReader reader;
  make_h2o_proxy(reader)->score(view, 0, scratch, noted);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(noted[i], found[i] + (i < 29 ? 2.0F : 0.0F), 1e-5F);
  }
}

TEST(KeyProxy, RefusesPartsThatWouldChooseToo) {
  const auto problem = [](const std::string& spec) {
    return test::error_of(ErrorCode::kInvalidArgument, [&] { Policy::parse(spec); });
  };
  EXPECT_NE(problem("h2o@proxy+chunkkv:budget=64").find("no transform can follow"),
            std::string::npos);
  EXPECT_NE(problem("h2o@proxy+rank:budget=64").find("no transform can follow"), std::string::npos);
  EXPECT_NE(problem("tova@proxy+roles:budget=64").find("nor can roles"), std::string::npos);
  EXPECT_NE(problem("cam@proxy+merge:budget=64").find("no merger can follow"), std::string::npos);
  EXPECT_NE(problem("h2o@proxy:budget=64,positions=contiguous").find("positions=original"),
            std::string::npos);
  EXPECT_NO_THROW(Policy::parse("h2o@proxy+merge:budget=64"));
  EXPECT_NO_THROW(Policy::parse("h2o@proxy+pyramid:budget=64"));
}

}  // namespace
}  // namespace winnow::policy
