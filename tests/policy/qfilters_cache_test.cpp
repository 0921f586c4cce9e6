// Caches that are cut by calibrated filters: what they keep, for any way the rows may come.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "kernels/append.h"
#include "kernels/parallel.h"
#include "policy/policy.h"
#include "support/filters.h"
#include "support/random_rows.h"

namespace winnow::policy {
namespace {

constexpr int kHeads = 3;
constexpr int kDim = 16;
using Positions = std::vector<std::vector<int32_t>>;  // [n_kv_heads, n_kept]

const FilterShape kShape{.n_layers = 1, .n_heads = kHeads, .n_kv_heads = kHeads, .head_dim = kDim};

int draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// Keys [n, kHeads, kDim].
struct Keys {
  int n = 0;
  std::vector<float> elements;

  float& at(int row, int head, int channel) {
    return elements[static_cast<size_t>((row * kHeads + head) * kDim + channel)];
  }
};

// Whose first channels are of few values, some of them one unit in the last place apart, now and then no number.
Keys tied_keys(std::mt19937& random, int n) {
  Keys keys{.n = n, .elements = test::random_floats(random, size_t{1} * n * kHeads * kDim)};
  for (int row = 0; row < n; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      float& first = keys.at(row, head, 0);
      first = static_cast<float>(draw(random, -3, 3));
      if (draw(random, 0, 1) == 0) {
        first = std::nextafter(first, 9.0F);
      }
      if (draw(random, 0, 30) == 0) {
        first = draw(random, 0, 1) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                        : -std::numeric_limits<float>::infinity();
      }
    }
  }
  return keys;
}

// The positions held once rows came in chunks of the given lengths; after each of them the budget is kept. Rows are scored as
// they are appended or, without stored scores, by reading their keys whenever they are compared.
Positions kept(const Policy& policy, const Keys& keys, const std::vector<int>& chunks,
               bool stores_scores = true) {
  kernels::ParallelFor parallel(1);
  cache::Cache cache({.n_layers = 1,
                      .n_kv_heads = kHeads,
                      .head_dim = kDim,
                      .key_type = cache::RowType::kF32,
                      .value_type = cache::RowType::kF32,
                      .max_rows = keys.n,
                      .stores_scores = stores_scores,
                      .score_kind = stores_scores ? cache::StaticScore::kProjection
                                                  : cache::StaticScore::kSquaredNorm});
  Choice choice;
  int begin = 0;
  for (const int n : chunks) {
    std::vector<cache::HeadRows> heads;
    for (int head = 0; head < kHeads; ++head) {
      const float* const first = keys.elements.data() + (begin * kHeads + head) * kDim;
      const kernels::NewRows rows{.keys = first,
                                  .values = first,
                                  .stride = size_t{kHeads} * kDim,
                                  .n_rows = n,
                                  .first_pos = begin,
                                  .direction = policy.score_directions()->of(0, head)};
      cache.commit(0, head, n,
                   kernels::append_rows(rows, cache.shape(), cache.reserve(0, head, n)));
      heads.push_back(cache.rows(0, head));
    }
    begin += n;
    const LayerView layer{.layer = 0, .heads = heads, .n_positions = begin};
    if (policy.choose({&layer, 1}, parallel, choice)) {
      for (int head = 0; head < kHeads; ++head) {
        cache.keep(0, head, choice.kept[static_cast<size_t>(head)]);
      }
    }
    for (int head = 0; head < kHeads; ++head) {
      EXPECT_EQ(cache.n_cached(0, head), std::min(begin, policy.budget_rows()));
    }
  }
  EXPECT_EQ(begin, keys.n);
  Positions positions;
  for (int head = 0; head < kHeads; ++head) {
    positions.push_back(cache.positions(0, head));
  }
  return positions;
}

std::vector<int> chunks_of(int n, int size) {
  std::vector<int> chunks(static_cast<size_t>(n / size), size);
  if (n % size > 0) {
    chunks.push_back(n % size);
  }
  return chunks;
}

std::vector<int> random_chunks(std::mt19937& random, int n) {
  std::vector<int> chunks;
  for (int left = n; left > 0; left -= chunks.back()) {
    chunks.push_back(draw(random, 1, std::min(left, draw(random, 0, 3) == 0 ? left : 12)));
  }
  return chunks;
}

// The first channel of each head's keys.
Filters first_channel() {
  Filters filters = test::random_filters(kShape);
  std::ranges::fill(filters.directions, 0.0F);
  for (size_t head = 0; head < kHeads; ++head) {
    filters.directions[head * kDim] = 1;
  }
  return filters;
}

// Sinks, the last rows, and of the others those with the highest first channel; of equal ones the earlier, and what is no
// number last.
std::vector<int32_t> ranked(Keys& keys, int head, int budget, int n_sink, int n_recent) {
  std::vector<int32_t> order(static_cast<size_t>(keys.n));
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](int32_t row) {
    const bool is_protected = row < n_sink || row >= keys.n - n_recent;
    const float score = keys.at(row, head, 0);
    return std::pair(is_protected        ? 0
                     : std::isnan(score) ? 2
                                         : 1,
                     is_protected || std::isnan(score) ? 0.0F : -score);
  };
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return rank(a) < rank(b); });
  order.resize(static_cast<size_t>(std::min(keys.n, budget)));
  std::ranges::sort(order);
  return order;
}

Policy policy_of(const Filters& filters, const std::string& options) {
  return Policy::parse("qfilters:slack=0,filters=" + test::write_filters(filters) + "," + options);
}

TEST(QFiltersCache, KeepsTheHighestProjectionsForAnyChunking) {
  std::mt19937 random(1);
  const Filters filters = first_channel();
  for (int trial = 0; trial < 300 && !testing::Test::HasFailure(); ++trial) {
    const int n_sink = draw(random, 0, 5);
    const int n_recent = draw(random, 0, 6);
    const int budget = draw(random, n_sink + n_recent + 1, 30);
    const Policy policy = policy_of(filters, "budget=" + std::to_string(budget) +
                                                 ",n_sink=" + std::to_string(n_sink) +
                                                 ",n_recent=" + std::to_string(n_recent));
    Keys keys = tied_keys(random, draw(random, 1, 120));
    const Positions one_shot = kept(policy, keys, {keys.n});
    for (int head = 0; head < kHeads; ++head) {
      ASSERT_EQ(one_shot[static_cast<size_t>(head)], ranked(keys, head, budget, n_sink, n_recent));
    }
    for (int i = 0; i < 3; ++i) {
      const std::vector<int> chunks = random_chunks(random, keys.n);
      ASSERT_EQ(kept(policy, keys, chunks), one_shot);
      ASSERT_EQ(kept(policy, keys, chunks, /*stores_scores=*/false), one_shot);
    }
  }
}

TEST(QFiltersCache, PublishedChunkSizesKeepTheSameRows) {
  std::mt19937 random(2);
  constexpr int kRows = 1073;
  for (const char* const options :
       {"budget=128,n_sink=4,n_recent=0", "budget=128,n_sink=4,n_recent=32",
        "budget=20,n_sink=9,n_recent=10"}) {
    const Policy policy = policy_of(test::random_filters(kShape), options);
    const Keys keys{.n = kRows,
                    .elements = test::random_floats(random, size_t{kRows} * kHeads * kDim)};
    const Positions one_shot = kept(policy, keys, {kRows});
    for (const int size : {512, 256, 64, 16, 1}) {
      EXPECT_EQ(kept(policy, keys, chunks_of(kRows, size)), one_shot) << size;
    }
    for (const std::vector<int32_t>& positions : one_shot) {
      for (int i = 0; i < policy.n_recent(); ++i) {
        EXPECT_EQ(positions[positions.size() - 1 - static_cast<size_t>(i)], kRows - 1 - i);
      }
    }
  }
}

// All equal, and all protected but one: exactly the budget.
TEST(QFiltersCache, TiesNeverExceedTheBudget) {
  Keys keys{.n = 5000, .elements = std::vector<float>(size_t{5000} * kHeads * kDim, 1.0F)};
  for (const int budget : {1, 20, 4096, 4097}) {
    const Policy policy =
        policy_of(first_channel(), "n_sink=0,n_recent=0,budget=" + std::to_string(budget));
    std::vector<int32_t> first(static_cast<size_t>(budget));
    std::iota(first.begin(), first.end(), 0);
    EXPECT_EQ(kept(policy, keys, {keys.n}), Positions(kHeads, first));
    EXPECT_EQ(kept(policy, keys, chunks_of(keys.n, 700)), Positions(kHeads, first));
  }
}

}  // namespace
}  // namespace winnow::policy
