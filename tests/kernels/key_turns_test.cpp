// Keys turned as they are read: against rotations in double, and in attention as if they had been stored so.

#include "kernels/key_turns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/append.h"
#include "oracle/attention_oracle.h"
#include "support/attend.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::RowType;
using kernels::Rotation;

Rotation random_rotation(std::mt19937& random, int head_dim) {
  Rotation rotation{
      .layout = random() % 2 == 0 ? Rotation::Pairs::kHalves : Rotation::Pairs::kNeighbours,
      .step = std::uniform_real_distribution<float>(0.7F, 0.99F)(random),
      .scale = random() % 2 == 0 ? 1.0F : 0.25F,
      .pairs = {}};
  rotation.pairs.resize(
      std::uniform_int_distribution<size_t>(1, static_cast<size_t>(head_dim / 2))(random));
  for (Rotation::Pair& pair : rotation.pairs) {
    pair = {.divisor = std::uniform_real_distribution<float>(1, 8)(random),
            .unscaled = std::uniform_real_distribution<float>(0, 1)(random)};
  }
  return rotation;
}

// The frequency of a pair as the documents of rope scaling define it.
double angle_per_position(const Rotation& rotation, size_t pair) {
  const double unscaled = std::pow(static_cast<double>(rotation.step), static_cast<double>(pair)) /
                          static_cast<double>(rotation.pairs[pair].divisor);
  const auto share = static_cast<double>(rotation.pairs[pair].unscaled);
  return unscaled * (static_cast<double>(rotation.scale) * (1 - share) + share);
}

// A head of random rows, of which some are kept, with rotations that grow with the positions.
struct Head {
  cache::Cache cache;
  Rotation rotation;
  kernels::TurnTable table;
  std::vector<int32_t> lags;

  cache::HeadRows rows() const { return cache.rows(0, 0); }
  kernels::KeyTurns turns() const { return {.table = &table, .lags = lags.data()}; }
};

Head random_head(std::mt19937& random) {
  constexpr int kDims[] = {64, 80, 128, 20, 32, 256};
  constexpr RowType kTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16};
  const int head_dim = kDims[random() % std::size(kDims)];
  const int n_rows = std::uniform_int_distribution<int>(1, 300)(random);
  Head head{.cache = cache::Cache({.n_layers = 1,
                                   .n_kv_heads = 1,
                                   .head_dim = head_dim,
                                   .key_type = kTypes[random() % 3],
                                   .value_type = kTypes[random() % 3],
                                   .max_rows = 400,
                                   .stores_rotations = true}),
            .rotation = random_rotation(random, head_dim),
            .table = {},
            .lags = {}};
  const auto keys =
      test::random_floats(random, static_cast<size_t>(n_rows) * static_cast<size_t>(head_dim));
  int pos = 0;
  int rotation = 0;
  for (int row = 0; row < n_rows;) {  // runs, as after evictions
    const int n = std::min(n_rows - row, std::uniform_int_distribution<int>(1, 60)(random));
    const auto target = head.cache.reserve(0, 0, n);
    const float* const first = keys.data() + static_cast<size_t>(row * head_dim);
    head.cache.commit(0, 0, n,
                      kernels::append_rows({.keys = first,
                                            .values = first,
                                            .stride = static_cast<size_t>(head_dim),
                                            .n_rows = n,
                                            .first_pos = pos,
                                            .first_rotation = rotation},
                                           head.cache.shape(), target));
    row += n;
    pos += n;
    rotation = std::uniform_int_distribution<int>(0, 2000)(random);
  }
  const int n_kept = std::uniform_int_distribution<int>(1, n_rows)(random);
  head.cache.keep(0, 0, test::random_slots(random, n_rows, n_kept));
  head.table = kernels::TurnTable(head.rotation);
  head.table.reserve(3000);
  head.lags.resize(static_cast<size_t>(head.rows().n));
  kernels::contiguous_lags(head.rows(), 400, head.lags);
  return head;
}

TEST(KeyTurns, PutTheVisibleRowsAtPositionsWithoutGaps) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const Head head = random_head(random);
    const cache::HeadRows rows = head.rows();
    int expected = 400 - rows.n_visible();
    for (int slot = 0; slot < rows.n; ++slot) {
      const int lag = head.lags[static_cast<size_t>(slot)];
      if (rows.hidden != nullptr && rows.hidden[slot] != cache::kVisible) {
        EXPECT_EQ(lag, 0);
      } else {
        EXPECT_EQ(rows.rotations[slot] - lag, expected++);
      }
    }
    EXPECT_EQ(expected, 400);
  }
}

TEST(KeyTurns, AreRotationsInDoubleButForTheLastBits) {
  std::mt19937 random(2);
  Scratch scratch;
  for (int round = 0; round < 50; ++round) {
    const Head head = random_head(random);
    const cache::HeadRows rows = head.rows();
    const auto dim = static_cast<size_t>(rows.head_dim);
    std::vector<float> keys(static_cast<size_t>(rows.n) * dim);
    kernels::turned_keys(rows, head.turns(), scratch, keys);
    for (size_t slot = 0; slot < head.lags.size(); ++slot) {
      std::vector<double> expected(dim);
      double norm = 0;
      for (size_t i = 0; i < dim; ++i) {
        expected[i] = oracle::row_element(rows.keys, rows.key_type, slot * dim + i);
        norm += expected[i] * expected[i];
      }
      for (size_t pair = 0; pair < head.rotation.pairs.size(); ++pair) {
        double& a = expected[head.rotation.first(pair)];
        double& b = expected[head.rotation.second(pair)];
        const double angle = -head.lags[slot] * angle_per_position(head.rotation, pair);
        const double turned = a * std::cos(angle) - b * std::sin(angle);
        b = a * std::sin(angle) + b * std::cos(angle);
        a = turned;
      }
      for (size_t i = 0; i < dim; ++i) {
        // Two turns of floats are put together: 2^-24 of each, and of the products.
        ASSERT_NEAR(static_cast<double>(keys[slot * dim + i]), expected[i], 5e-7 * std::sqrt(norm))
            << "slot " << slot << ", element " << i << ", lag " << head.lags[slot];
      }
    }
  }
}

TEST(KeyTurns, TheirBitsDoNotDependOnTheInstructionSet) {
  std::mt19937 random(3);
  Scratch scratch;
  for (int round = 0; round < 10; ++round) {
    const Head head = random_head(random);
    std::vector<float> first;
    test::for_every_instruction_set([&](const std::string& name) {
      std::vector<float> keys(head.lags.size() * static_cast<size_t>(head.rows().head_dim));
      kernels::turned_keys(head.rows(), head.turns(), scratch, keys);
      if (first.empty()) {
        first = keys;
      }
      EXPECT_EQ(std::memcmp(first.data(), keys.data(), keys.size() * sizeof(float)), 0) << name;
    });
  }
}

// The same rows in a cache of floats, whose keys were turned beforehand.
cache::Cache turned_cache(const Head& head) {
  const cache::HeadRows rows = head.rows();
  cache::CacheShape shape = head.cache.shape();
  shape.key_type = RowType::kF32;
  shape.stores_rotations = false;
  cache::Cache cache(shape);
  const auto dim = static_cast<size_t>(rows.head_dim);
  std::vector<float> keys(static_cast<size_t>(rows.n) * dim);
  Scratch scratch;
  kernels::turned_keys(rows, head.turns(), scratch, keys);
  const auto target = cache.reserve(0, 0, rows.n);
  std::memcpy(target.keys, keys.data(), keys.size() * sizeof(float));
  std::memcpy(target.values, rows.values, static_cast<size_t>(rows.n) * shape.value_bytes());
  std::memcpy(target.positions, rows.positions, static_cast<size_t>(rows.n) * sizeof(int32_t));
  cache.commit(0, 0, rows.n, {});
  if (rows.hidden != nullptr) {
    std::vector<int> visible(static_cast<size_t>(rows.n));
    const auto slots = cache::visible_slots(rows, visible);
    cache.hide_others(0, 0, slots);
  }
  return cache;
}

TEST(KeyTurns, AttentionIsAsIfKeysHadBeenStoredTurned) {
  std::mt19937 random(4);
  for (int round = 0; round < 40; ++round) {
    Head head = random_head(random);
    cache::Cache turned = turned_cache(head);
    const auto dim = static_cast<size_t>(head.rows().head_dim);
    constexpr int kHeads = 3;
    for (const bool is_prompt : {true, false}) {
      const int n_tokens = is_prompt ? 5 : 1;
      const auto queries =
          test::random_floats(random, static_cast<size_t>(n_tokens * kHeads) * dim);
      const auto attend = [&](cache::Cache& cache, int n_threads) {
        kernels::StepContext step({.n_heads = kHeads,
                                   .n_kv_heads = 1,
                                   .head_dim = static_cast<int>(dim),
                                   .scale = 0.125F},
                                  n_threads, {.all = head.rotation, .windowed = {}});
        return test::attend_as_node({.step = &step, .layer = 0},
                                    {.cache = &cache,
                                     .first_token = 0,
                                     .n_tokens = n_tokens,
                                     .first_pos = 300,
                                     .first_rotation = 400 - n_tokens,
                                     .is_prompt = is_prompt},
                                    queries, n_threads);
      };
      const auto expected = attend(turned, 1);
      for (const int n_threads : {1, 3}) {
        const auto out = attend(head.cache, n_threads);
        ASSERT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0)
            << (is_prompt ? "prompt" : "decode") << ", " << n_threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace winnow
