// With contiguous positions every method scores rows as attention will see them: turned to their places.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "cache/cache.h"
#include "kernels/append.h"
#include "kernels/key_turns.h"
#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/policy.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

constexpr int kHeads = 4;
constexpr int kKvHeads = 2;
constexpr int kDim = 32;
constexpr int kRows = 90;
constexpr int kQueries = 8;
constexpr int kEnd = 400;  // the next position

kernels::Rotation rotation() {
  kernels::Rotation rotation{
      .layout = kernels::Rotation::Pairs::kHalves, .step = 0.7F, .pairs = {}};
  rotation.pairs.resize(kDim / 2);
  return rotation;
}

// One layer: rows with gaps, rotated when there were more, and the last queries, likewise; and the same after turning.
struct Layer {
  cache::Cache cache;
  kernels::QueryWindow queries;
};

cache::CacheShape shape_of(bool stores_mass) {
  return {.n_layers = 1,
          .n_kv_heads = kKvHeads,
          .head_dim = kDim,
          .key_type = cache::RowType::kF32,
          .value_type = cache::RowType::kF32,
          .max_rows = 200,
          .stores_scores = true,
          .stores_mass = stores_mass,
          .stores_rotations = true};
}

void append(cache::Cache& cache, int kv_head, const float* key, const float* value, int pos,
            int rotated_to) {
  const auto target = cache.reserve(0, kv_head, 1);
  const auto counts = kernels::append_rows({.keys = key,
                                            .values = value,
                                            .stride = kDim,
                                            .n_rows = 1,
                                            .first_pos = pos,
                                            .first_rotation = rotated_to},
                                           cache.shape(), target);
  if (target.mass != nullptr) {
    *target.mass = (int64_t{pos} * 7919) % 1000;
  }
  cache.commit(0, kv_head, 1, counts);
}

struct Chosen {
  policy::KeptSlots kept;
  std::vector<double> measured;  // of the layer, by an allocator that does so

  bool is_like(const Chosen& other) const {
    return kept == other.kept &&
           std::ranges::equal(measured, other.measured, [](double a, double b) {
             return std::abs(a - b) <= 1e-5 * std::abs(a);
           });
  }
};

Chosen chosen(const policy::Policy& policy, const Layer& layer,
              const kernels::QueryMoments& moments, const kernels::TurnTable& table) {
  std::vector<cache::HeadRows> heads;
  for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
    heads.push_back(layer.cache.rows(0, kv_head));
  }
  policy::LayerView view{.layer = 0, .heads = heads};
  view.n_positions = kEnd;
  view.attention = {.n_heads = kHeads, .n_kv_heads = kKvHeads, .head_dim = kDim, .scale = 0.3F};
  view.queries = &layer.queries;
  view.moments = &moments;
  view.rotation = &table.rotation();
  view.turns = &table;
  kernels::ParallelFor parallel(1);
  policy::Choice choice;
  EXPECT_TRUE(policy.choose({&view, 1}, parallel, choice));
  return {.kept = choice.kept, .measured = choice.measured};
}

TEST(ContiguousPolicy, EveryMethodScoresRowsWhereAttentionWillSeeThem) {
  const kernels::QueryWindow::Shape window{
      .n_heads = kHeads, .head_dim = kDim, .n_queries = kQueries, .is_watched = {true}};
  kernels::TurnTable table(rotation());
  table.reserve(1000);
  std::mt19937 random(1);
  const auto dim = static_cast<size_t>(kDim);
  const auto token = static_cast<size_t>(kHeads) * dim;
  Scratch scratch;

  kernels::QueryMoments moments({.n_heads = kHeads, .head_dim = kDim, .is_watched = {true}});
  const auto counted = test::random_floats(random, 50 * dim);
  std::vector<float> turns(50 * table.rotation().n_rot());
  for (size_t i = 0; i < 50; ++i) {
    kernels::turns_at(
        table.rotation(), static_cast<int>(i),
        std::span(turns).subspan(i * table.rotation().n_rot(), table.rotation().n_rot()));
  }
  std::vector<float> memory(kernels::QueryMoments::scratch_floats(kDim));
  for (int head = 0; head < kHeads; ++head) {
    moments.add(
        0, head,
        {.q = counted.data(), .stride = dim, .n_tokens = 50, .first_pos = 0, .turns = turns.data()},
        table.rotation(), memory.data());
  }

  int n_different_without_turning = 0;
  for (const char* spec :
       {"keydiff", "lagkv:lag=8", "snapkv:obs_window=8", "snapkv:obs_window=8,force_window=false",
        "tova", "tova:per_layer=true", "quest:obs_window=8,page=4", "expected-attention", "knorm",
        "h2o", "random", "streaming", "knorm+cake:cake_window=8"}) {
    const auto policy = policy::Policy::parse(
        std::string(spec) +
        (std::string_view(spec).find(":") == std::string_view::npos ? ":" : ",") +
        "n_recent=0,n_sink=0,positions=contiguous,budget=30");
    const cache::CacheShape shape = shape_of(policy.needs().column_mass);
    Layer stored{.cache = cache::Cache(shape), .queries = kernels::QueryWindow(window)};
    Layer turned{.cache = cache::Cache(shape), .queries = kernels::QueryWindow(window)};
    for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      const int n = kRows - 10 * kv_head;
      const auto keys = test::random_floats(random, static_cast<size_t>(n) * dim);
      const auto values = test::random_floats(random, static_cast<size_t>(n) * dim);
      for (int row = 0; row < n; ++row) {
        // The last rows have all positions; what is before has gaps.
        const int n_behind = n - row;
        const int pos = n_behind <= 20 ? kEnd - n_behind : kEnd - 20 - 2 * (n_behind - 20);
        const int place = 200 - n_behind;
        const int lag = row == n - 1 ? 0 : row % 37 - 5 * kv_head;
        const float* const key = keys.data() + static_cast<size_t>(row) * dim;
        const float* const value = values.data() + static_cast<size_t>(row) * dim;
        append(stored.cache, kv_head, key, value, pos, place + lag);
        std::vector<float> placed(key, key + dim);
        kernels::turn_back_by(table, lag, scratch, placed);
        append(turned.cache, kv_head, placed.data(), value, pos, place);
      }
    }
    for (int i = 0; i < kQueries; ++i) {
      const int pos = kEnd - kQueries + i;
      const int place = 200 - kQueries + i;
      const int lag = 3 * (kQueries - 1 - i);
      const auto q = test::random_floats(random, token);
      stored.queries.add(0, q.data(), 1, pos, place + lag);
      std::vector<float> placed = q;
      for (size_t head = 0; head < token; head += dim) {
        kernels::turn_back_by(table, lag, scratch, std::span(placed).subspan(head, dim));
      }
      turned.queries.add(0, placed.data(), 1, pos, place);
    }
    const Chosen expected = chosen(policy, turned, moments, table);
    EXPECT_TRUE(chosen(policy, stored, moments, table).is_like(expected)) << spec;

    // As if the keys of `stored` stood where they are.
    Layer wrong{.cache = cache::Cache(shape), .queries = turned.queries};
    for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      const cache::HeadRows from = stored.cache.rows(0, kv_head);
      for (int slot = 0; slot < from.n; ++slot) {
        const auto at = static_cast<size_t>(slot) * dim;
        append(wrong.cache, kv_head, reinterpret_cast<const float*>(from.keys) + at,
               reinterpret_cast<const float*>(from.values) + at, from.positions[slot],
               turned.cache.rows(0, kv_head).rotations[slot]);
      }
    }
    n_different_without_turning += chosen(policy, wrong, moments, table).is_like(expected) ? 0 : 1;
  }
  EXPECT_EQ(n_different_without_turning, 9);  // the methods that read keys
}

}  // namespace
}  // namespace winnow
