// Evicting in any steps ends with the rows that one eviction at the end keeps, for given keys and values; so does
// hiding rows in place of evicting them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cache/cache.h"
#include "kernels/append.h"
#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/policy.h"
#include "support/filters.h"

namespace winnow::policy {
namespace {

constexpr int kHeads = 2;
constexpr int kHeadDim = 4;

int draw_between(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

struct Row {
  int32_t position;
  float norm;  // squared
};

using Input = std::vector<std::vector<Row>>;          // [n_kv_heads, n]
using Positions = std::vector<std::vector<int32_t>>;  // [n_kv_heads, n_kept*]
enum class Removal { kEvict, kHide };

// Appends rows [begin, end) of the input to every head, with values that are NaN and keys along the first channel.
void append(const Input& input, int begin, int end, cache::Cache& cache) {
  const int n_rows = end - begin;
  const size_t vector_bytes = static_cast<size_t>(n_rows) * kHeadDim * sizeof(float);
  for (int head = 0; head < kHeads; ++head) {
    const cache::Cache::Target target = cache.reserve(0, head, n_rows);
    std::memset(target.keys, 0, vector_bytes);
    std::memset(target.values, 0xff, vector_bytes);
    for (int i = 0; i < n_rows; ++i) {
      const Row& row = input[static_cast<size_t>(head)][static_cast<size_t>(begin + i)];
      target.positions[i] = row.position;
      target.scores[i] = row.norm;
      std::memcpy(target.keys + static_cast<size_t>(i) * kHeadDim * sizeof(float), &row.norm,
                  sizeof(float));
    }
    cache.commit(0, head, n_rows, {});
  }
}

void cut_back(const Policy& policy, Removal removal, kernels::ParallelFor& parallel,
              cache::Cache& cache) {
  std::vector<cache::HeadRows> heads;
  for (int head = 0; head < kHeads; ++head) {
    heads.push_back(cache.rows(0, head));
  }
  const LayerView layer{.layer = 0, .heads = heads};
  Choice choice;
  if (!policy.choose({&layer, 1}, parallel, choice)) {
    return;
  }
  const KeptSlots& kept = choice.kept;
  for (size_t head = 0; head < kept.size(); ++head) {
    if (removal == Removal::kEvict) {
      cache.keep(0, static_cast<int>(head), kept[head]);
    } else {
      cache.hide_others(0, static_cast<int>(head), kept[head]);
    }
  }
}

// The positions that attention sees at the end, when the input comes in chunks of 1 to max_chunk rows.
Positions kept_positions(const Policy& policy, const Input& input, int max_chunk, Removal removal,
                         std::mt19937& random) {
  const int n = static_cast<int>(input[0].size());
  kernels::ParallelFor parallel(1);
  cache::Cache cache({.n_layers = 1,
                      .n_kv_heads = kHeads,
                      .head_dim = kHeadDim,
                      .key_type = cache::RowType::kF32,
                      .value_type = cache::RowType::kF32,
                      .max_rows = n,
                      .stores_scores = true});
  for (int begin = 0; begin < n;) {
    const int end = std::min(n, begin + (max_chunk >= n ? n : draw_between(random, 1, max_chunk)));
    append(input, begin, end, cache);
    cut_back(policy, removal, parallel, cache);
    begin = end;
  }
  Positions positions(kHeads);
  for (int head = 0; head < kHeads; ++head) {
    const cache::HeadRows rows = cache.rows(0, head);
    for (int slot = 0; slot < rows.n; ++slot) {
      if (rows.hidden == nullptr || rows.hidden[slot] == 0) {
        positions[static_cast<size_t>(head)].push_back(rows.positions[slot]);
      }
    }
  }
  return positions;
}

float draw_norm(std::mt19937& random, int n_values) {
  const int value = draw_between(random, 0, n_values);
  if (value == n_values && draw_between(random, 0, 3) == 0) {
    return draw_between(random, 0, 1) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                           : std::numeric_limits<float>::infinity();
  }
  return static_cast<float>(value);
}

void expect_path_independence(const Method& method, const std::string& options,
                              std::mt19937& random) {
  const int n_sink = draw_between(random, 0, 5);
  const int n_recent = draw_between(random, -1, 6);
  const int budget = draw_between(random, n_sink + std::max(n_recent, 2) + 1, 24);
  const Policy policy =
      Policy::parse(std::string(method.name) + ":budget=" + std::to_string(budget) + ",n_sink=" +
                    std::to_string(n_sink) + ",n_recent=" + std::to_string(n_recent) + options);
  const int n = draw_between(random, 1, 80);
  const int n_values = draw_between(random, 1, 5);  // few values: heavy ties
  Input input(kHeads);
  for (std::vector<Row>& rows : input) {
    for (int position = 0; position < n; ++position) {
      rows.push_back({position, draw_norm(random, n_values)});
    }
  }
  const Positions one_shot = kept_positions(policy, input, n, Removal::kEvict, random);
  ASSERT_EQ(std::ssize(one_shot[0]), std::min(n, budget));
  for (int max_chunk : {1, 3, 17, 40}) {
    ASSERT_EQ(kept_positions(policy, input, max_chunk, Removal::kEvict, random), one_shot)
        << policy.spec() << ", n " << n << ", chunks up to " << max_chunk;
  }
  ASSERT_EQ(kept_positions(policy, input, 5, Removal::kHide, random), one_shot)
      << policy.spec() << ", n " << n;
}

TEST(PathIndependence, AnyChunkingKeepsWhatOneShotKeeps) {
  std::mt19937 random(7);
  for (const Method& method : kMethods) {
    if (method.make == nullptr || !method.is_path_independent) {
      continue;
    }
    const std::string options = test::own_options(
        method, {.n_layers = 1, .n_heads = kHeads, .n_kv_heads = kHeads, .head_dim = kHeadDim});
    for (int trial = 0; trial < 1000 && !HasFatalFailure(); ++trial) {
      expect_path_independence(method, options, random);
    }
  }
}

// Scores are written once, at append, and never computed anew by other arithmetic: norms that differ by a bit rank alike
// however the rows came.
TEST(PathIndependence, ScoresThatDifferByABitRankAlikeForAnyChunking) {
  std::mt19937 random(8);
  const Policy policy = Policy::parse("knorm:budget=20,n_sink=2,n_recent=3");
  constexpr int kRows = 200;
  std::vector<float> elements(size_t{kRows} * kHeadDim);
  for (float& element :
       elements) {  // all norms are those of ones, but for a few units in the last place
    element = draw_between(random, 0, 1) == 0 ? 1.0F : std::nextafter(1.0F, 2.0F);
  }
  const auto kept = [&](int max_chunk) {
    kernels::ParallelFor parallel(1);
    cache::Cache cache({.n_layers = 1,
                        .n_kv_heads = kHeads,
                        .head_dim = kHeadDim,
                        .key_type = cache::RowType::kF32,
                        .value_type = cache::RowType::kF32,
                        .max_rows = kRows,
                        .stores_scores = true});
    for (int begin = 0; begin < kRows;) {
      const int n =
          max_chunk == kRows ? kRows : std::min(kRows - begin, draw_between(random, 1, max_chunk));
      for (int head = 0; head < kHeads; ++head) {
        const kernels::NewRows rows{.keys = &elements[static_cast<size_t>(begin) * kHeadDim],
                                    .values = elements.data(),
                                    .stride = kHeadDim,
                                    .n_rows = n,
                                    .first_pos = begin};
        cache.commit(0, head, n,
                     kernels::append_rows(rows, cache.shape(), cache.reserve(0, head, n)));
      }
      cut_back(policy, Removal::kEvict, parallel, cache);
      begin += n;
    }
    return Positions{cache.positions(0, 0), cache.positions(0, 1)};
  };
  const Positions expected = kept(kRows);
  for (const int max_chunk : {1, 2, 7, 64}) {
    EXPECT_EQ(kept(max_chunk), expected) << max_chunk;
  }
}

}  // namespace
}  // namespace winnow::policy
