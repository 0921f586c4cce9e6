// The append kernel: conversion, counting, and the static score.

#include "kernels/append.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "ggml.h"
#include "kernels/row_kernels.h"
#include "oracle/attention_oracle.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::RowType;

cache::CacheShape shape(int head_dim, RowType type) {
  return {.n_layers = 1,
          .n_kv_heads = 2,
          .head_dim = head_dim,
          .key_type = type,
          .value_type = type,
          .max_rows = 64,
          .stores_scores = true};
}

// The canonical order in plain loops: 32 chains, then the fixed tree. Of the key with the direction, or with itself.
float canonical_score(const cache::HeadRows& rows, int slot, std::span<const float> direction) {
  float chains[32] = {};
  for (int i = 0; i < rows.head_dim; ++i) {
    const auto x = static_cast<float>(oracle::row_element(
        rows.keys, rows.key_type, static_cast<size_t>(slot * rows.head_dim + i)));
    const float y = direction.empty() ? x : direction[static_cast<size_t>(i)];
    chains[i % 32] = std::fma(x, y, chains[i % 32]);
  }
  float q[8];
  for (int j = 0; j < 8; ++j) {
    q[j] = (chains[j] + chains[j + 8]) + (chains[j + 16] + chains[j + 24]);
  }
  return ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
}

TEST(Append, ConvertsAsGgmlDoes) {
  std::mt19937 random(1);
  for (const int dim : {64, 80, 20, 3}) {
    for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      cache::Cache cache(shape(dim, type));
      const auto keys = test::random_floats(random, static_cast<size_t>(5 * 2 * dim), 100.0F);
      test::append_tokens(cache, 0, 7, keys, keys);
      for (int head = 0; head < 2; ++head) {
        const cache::HeadRows rows = cache.rows(0, head);
        ASSERT_EQ(rows.n, 5);
        for (int slot = 0; slot < 5; ++slot) {
          EXPECT_EQ(rows.positions[slot], 7 + slot);
          for (int i = 0; i < dim; ++i) {
            const float x = keys[static_cast<size_t>((slot * 2 + head) * dim + i)];
            const float expected = type == RowType::kF32 ? x
                                   : type == RowType::kF16
                                       ? ggml_fp16_to_fp32(ggml_fp32_to_fp16(x))
                                       : ggml_bf16_to_fp32(ggml_fp32_to_bf16(x));
            const auto index = static_cast<size_t>(slot * dim + i);
            EXPECT_EQ(oracle::row_element(rows.keys, type, index), static_cast<double>(expected));
            EXPECT_EQ(oracle::row_element(rows.values, type, index), static_cast<double>(expected));
          }
        }
      }
    }
  }
}

TEST(Append, ScoreIsTheCanonicalSquaredNormOfTheStoredKey) {
  std::mt19937 random(2);
  for (const int dim : {64, 128, 80, 300, 3}) {
    for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      cache::Cache cache(shape(dim, type));
      const auto keys = test::random_floats(random, static_cast<size_t>(9 * 2 * dim));
      test::append_tokens(cache, 0, 0, keys, keys);
      for (int slot = 0; slot < 9; ++slot) {
        EXPECT_EQ(cache.rows(0, 1).scores[slot], canonical_score(cache.rows(0, 1), slot, {}))
            << dim;
      }
      std::vector<float> anew(9);
      kernels::static_scores(cache.rows(0, 1), {}, anew);
      EXPECT_EQ(anew, std::vector<float>(cache.rows(0, 1).scores, cache.rows(0, 1).scores + 9));
    }
  }
}

// To the bit what reading the keys gives.
TEST(Append, ScoreAlongADirectionIsTheCanonicalDotProduct) {
  std::mt19937 random(4);
  Scratch scratch;
  for (const int dim : {64, 128, 256, 80, 300, 3}) {
    for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      cache::Cache cache(shape(dim, type));
      const auto keys = test::random_floats(random, static_cast<size_t>(9 * 2 * dim));
      const auto direction = test::random_floats(random, static_cast<size_t>(dim));
      test::append_tokens(cache, 0, 0, keys, keys, direction);
      const cache::HeadRows rows = cache.rows(0, 1);
      std::vector<int> slots(9);
      std::iota(slots.begin(), slots.end(), 0);
      std::vector<float> dots(9);
      kernels::row_dots(kernels::keys_of(rows), slots, direction, dots, scratch);
      for (int slot = 0; slot < 9; ++slot) {
        EXPECT_EQ(rows.scores[slot], canonical_score(rows, slot, direction)) << dim;
        EXPECT_EQ(rows.scores[slot], dots[static_cast<size_t>(slot)]) << dim;
      }
      std::vector<float> anew(9);
      kernels::static_scores(rows, direction, anew);
      EXPECT_EQ(anew, dots);
    }
  }
}

TEST(Append, EveryInstructionSetWritesTheSameBits) {
  std::mt19937 random(3);
  for (const int dim : {64, 80, 20}) {
    for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      auto keys = test::random_floats(random, static_cast<size_t>(9 * 2 * dim), 30.0F);
      keys[5] = 1e38F;
      const auto direction = test::random_floats(random, static_cast<size_t>(dim));
      std::vector<std::byte> first;
      test::for_every_instruction_set([&](const std::string& name) {
        cache::Cache cache(shape(dim, type));
        test::append_tokens(cache, 0, 0, keys, keys, direction);
        test::append_tokens(cache, 0, 9, keys, keys);
        const cache::HeadRows rows = cache.rows(0, 1);
        std::vector<std::byte> bytes(
            rows.keys, rows.keys + 9 * static_cast<size_t>(dim) * element_bytes(type));
        const auto scores = std::as_bytes(std::span(rows.scores, 18));
        bytes.insert(bytes.end(), scores.begin(), scores.end());
        if (first.empty()) {
          first = bytes;
        }
        EXPECT_EQ(first, bytes) << name << ", " << dim;
      });
    }
  }
}

TEST(Append, CountsWhatOverflowsAndStoresTheLargestFiniteValue) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  cache::Cache cache(shape(64, RowType::kF16));
  std::vector<float> keys(2 * 64, 1.0F);
  std::vector<float> values(2 * 64, 1.0F);
  keys[3] = 70000.0F;
  keys[4] = -1e30F;
  keys[5] = 65519.0F;  // rounds to 65504: no overflow
  values[70] = kInfinity;
  values[71] = std::numeric_limits<float>::quiet_NaN();
  test::append_tokens(cache, 0, 0, keys, values);
  const auto counts = cache.append_counts();
  EXPECT_EQ(counts.saturated, 2);
  EXPECT_EQ(counts.nonfinite_keys, 0);
  EXPECT_EQ(counts.nonfinite_values, 2);
  EXPECT_EQ(oracle::row_element(cache.rows(0, 0).keys, RowType::kF16, 3), 65504.0);
  EXPECT_EQ(oracle::row_element(cache.rows(0, 0).keys, RowType::kF16, 4), -65504.0);
  EXPECT_EQ(oracle::row_element(cache.rows(0, 0).keys, RowType::kF16, 5), 65504.0);
  EXPECT_FALSE(cache.rows(0, 0).has_nonfinite_values);
  EXPECT_TRUE(cache.rows(0, 1).has_nonfinite_values);
}

}  // namespace
}  // namespace winnow
