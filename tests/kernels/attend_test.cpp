// Both attention kernels: against double loops, and evicted = masked to the bit.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "oracle/attention_oracle.h"
#include "support/attend.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::RowType;

struct Case {
  int head_dim, n_heads, n_kv_heads, n_rows;
  RowType key_type, value_type;
  int swa_window = 0;
};

cache::CacheShape shape_of(const Case& c) {
  return {.n_layers = 1,
          .n_kv_heads = c.n_kv_heads,
          .head_dim = c.head_dim,
          .key_type = c.key_type,
          .value_type = c.value_type,
          .max_rows = c.n_rows + 1,
          .stores_scores = false};
}

float scale_of(const Case& c) {
  return 1.0F / std::sqrt(static_cast<float>(c.head_dim));
}

// A cache of n_rows tokens at positions 0 …, of which each head keeps a random number of its own.
cache::Cache ragged_cache(std::mt19937& random, const Case& c) {
  cache::Cache cache(shape_of(c));
  const size_t n = static_cast<size_t>(c.n_rows) * static_cast<size_t>(c.n_kv_heads * c.head_dim);
  test::append_tokens(cache, 0, 0, test::random_floats(random, n), test::random_floats(random, n));
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    const int n_keep = std::uniform_int_distribution<int>(1, c.n_rows)(random);
    cache.keep(0, kv_head, test::random_slots(random, c.n_rows, n_keep));
  }
  return cache;
}

// The largest difference to the oracle, relative to the largest output of the query.
double error_against_oracle(const cache::Cache& cache, const Case& c,
                            std::span<const float> queries, int first_pos,
                            std::span<const float> outputs) {
  const auto dim = static_cast<size_t>(c.head_dim);
  const auto heads = static_cast<size_t>(c.n_heads);
  double worst = 0;
  for (size_t row = 0; row < queries.size() / dim; ++row) {
    const size_t head = row % heads;
    const int kv_head = static_cast<int>(head) / (c.n_heads / c.n_kv_heads);
    const auto expected = oracle::attention(cache.rows(0, kv_head), queries.data() + row * dim,
                                            first_pos + static_cast<int>(row / heads),
                                            static_cast<double>(scale_of(c)), c.swa_window);
    double largest = 1e-30;
    double difference = 0;
    for (size_t i = 0; i < dim; ++i) {
      largest = std::max(largest, std::abs(expected[i]));
      difference =
          std::max(difference, std::abs(expected[i] - static_cast<double>(outputs[row * dim + i])));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
}

constexpr Case kShapes[] = {
    {64, 9, 3, 0, RowType::kF32, RowType::kF32},   {64, 14, 2, 0, RowType::kF16, RowType::kF16},
    {128, 12, 2, 0, RowType::kF32, RowType::kF32}, {128, 4, 4, 0, RowType::kBf16, RowType::kF16},
    {80, 6, 2, 0, RowType::kF32, RowType::kBf16},  {96, 4, 1, 0, RowType::kF16, RowType::kF32},
    {256, 4, 1, 0, RowType::kF32, RowType::kF32},  {20, 5, 5, 0, RowType::kF16, RowType::kF16},
};

constexpr int kLengths[] = {1, 2, 7, 63, 64, 65, 255, 256, 257, 600, 1500, 4095, 5000};

TEST(Attend, DecodeAgreesWithDoubleLoopsOnRaggedHeads) {
  std::mt19937 random(1);
  for (Case c : kShapes) {
    for (const int n : kLengths) {
      c.n_rows = n;
      const cache::Cache cache = ragged_cache(random, c);
      const auto queries = test::random_floats(random, static_cast<size_t>(c.n_heads * c.head_dim));
      for (const int swa_window : {0, 1 + n / 3}) {
        c.swa_window = swa_window;
        const auto out =
            test::attend_decode_all(cache, 0, c.n_heads, n, queries, scale_of(c), swa_window);
        // The oracle reads the rows as stored, so the row type is no excuse.
        EXPECT_LE(error_against_oracle(cache, c, queries, n, out), 1e-5)
            << c.head_dim << " " << n << " " << swa_window;
      }
    }
  }
}

TEST(Attend, PromptAgreesWithDoubleLoopsOnRaggedHeads) {
  std::mt19937 random(2);
  for (Case c : kShapes) {
    for (const int n : {1, 7, 64, 255, 300, 1100, 5000}) {
      c.n_rows = n;
      const cache::Cache cache = ragged_cache(random, c);
      const int n_tokens = std::min(n, 19);
      const auto queries =
          test::random_floats(random, static_cast<size_t>(n_tokens * c.n_heads * c.head_dim));
      const int first_pos = n - n_tokens;  // the first tokens do not see the last rows
      for (const int swa_window : {0, 1 + n / 3}) {
        c.swa_window = swa_window;
        const auto out = test::attend_prompt_all(cache, 0, c.n_heads, first_pos, queries,
                                                 scale_of(c), swa_window);
        EXPECT_LE(error_against_oracle(cache, c, queries, first_pos, out), 1e-5)
            << c.head_dim << " " << n << " " << swa_window;
      }
    }
  }
}

// Two caches with the same tokens; one evicts, the other hides. 8 shapes x 25 cases x 2 kernels.
TEST(Attend, EvictedEqualsMaskedToTheBit) {
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 25; ++repeat) {
    for (Case c : kShapes) {
      c.n_rows = std::uniform_int_distribution<int>(1, 6000)(random);
      const size_t n =
          static_cast<size_t>(c.n_rows) * static_cast<size_t>(c.n_kv_heads * c.head_dim);
      const auto keys = test::random_floats(random, n);
      auto values = test::random_floats(random, n);
      if (repeat % 5 == 4) {  // what is evicted may even be infinite
        values[std::uniform_int_distribution<size_t>(0, n - 1)(random)] =
            std::numeric_limits<float>::infinity();
      }
      cache::Cache evicted(shape_of(c));
      cache::Cache masked(shape_of(c));
      test::append_tokens(evicted, 0, 0, keys, values);
      test::append_tokens(masked, 0, 0, keys, values);
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        const int n_keep = std::uniform_int_distribution<int>(1, c.n_rows)(random);
        const auto slots = test::random_slots(random, c.n_rows, n_keep);
        evicted.keep(0, kv_head, slots);
        masked.hide_others(0, kv_head, slots);
      }
      const int n_tokens = std::min(c.n_rows, 9);
      const auto queries =
          test::random_floats(random, static_cast<size_t>(n_tokens * c.n_heads * c.head_dim));
      const int first_pos = c.n_rows - n_tokens;
      c.swa_window =
          repeat % 2 == 0 ? 0 : std::uniform_int_distribution<int>(1, c.n_rows + 9)(random);
      const auto a = test::attend_prompt_all(evicted, 0, c.n_heads, first_pos, queries, scale_of(c),
                                             c.swa_window);
      const auto b = test::attend_prompt_all(masked, 0, c.n_heads, first_pos, queries, scale_of(c),
                                             c.swa_window);
      ASSERT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float)))
          << "prompt, " << c.n_rows << " rows of " << c.head_dim;
      const std::span<const float> one(queries.data(), static_cast<size_t>(c.n_heads * c.head_dim));
      const auto e =
          test::attend_decode_all(evicted, 0, c.n_heads, c.n_rows, one, scale_of(c), c.swa_window);
      const auto m =
          test::attend_decode_all(masked, 0, c.n_heads, c.n_rows, one, scale_of(c), c.swa_window);
      ASSERT_EQ(0, std::memcmp(e.data(), m.data(), e.size() * sizeof(float)))
          << "decode, " << c.n_rows << " rows of " << c.head_dim;
    }
  }
}

// The rows that the window hides from every query may be masked, or gone.
TEST(Attend, AWindowEqualsRowsThatAreNotThereToTheBit) {
  std::mt19937 random(6);
  for (int repeat = 0; repeat < 10; ++repeat) {
    for (Case c : kShapes) {
      c.n_rows = std::uniform_int_distribution<int>(1, 5000)(random);
      const int window = std::uniform_int_distribution<int>(1, c.n_rows)(random);
      const size_t n =
          static_cast<size_t>(c.n_rows) * static_cast<size_t>(c.n_kv_heads * c.head_dim);
      const auto keys = test::random_floats(random, n);
      const auto values = test::random_floats(random, n);
      cache::Cache whole(shape_of(c));
      cache::Cache dropped(shape_of(c));
      cache::Cache masked(shape_of(c));
      for (cache::Cache* const cache : {&whole, &dropped, &masked}) {
        test::append_tokens(*cache, 0, 0, keys, values);
      }
      std::vector<int> seen(static_cast<size_t>(window));  // by the token at the last position
      std::iota(seen.begin(), seen.end(), c.n_rows - window);
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        dropped.keep(0, kv_head, seen);
        masked.hide_others(0, kv_head, seen);
      }
      const int pos = c.n_rows - 1;
      const auto q = test::random_floats(random, static_cast<size_t>(c.n_heads * c.head_dim));
      const auto expect_same = [&](const cache::Cache& other, int swa_window) {
        for (const auto attend : {test::attend_prompt_all, test::attend_decode_all}) {
          const auto a = attend(whole, 0, c.n_heads, pos, q, scale_of(c), window);
          const auto b = attend(other, 0, c.n_heads, pos, q, scale_of(c), swa_window);
          ASSERT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float)))
              << window << " of " << c.n_rows << " rows of " << c.head_dim;
        }
      };
      expect_same(dropped, window);
      expect_same(dropped, 0);
      expect_same(masked, 0);
    }
  }
}

void expect_same_bits_however_cut(int swa_window) {
  std::mt19937 random(4);
  const Case c{64,           9, 3, 4400, RowType::kF16,
               RowType::kF16};  // crosses the first change of block length, at 4096
  const size_t n = static_cast<size_t>(c.n_rows * c.n_kv_heads * c.head_dim);
  cache::Cache cache(shape_of(c));
  test::append_tokens(cache, 0, 0, test::random_floats(random, n), test::random_floats(random, n));
  const int first_pos = 4000;
  const size_t token = static_cast<size_t>(c.n_heads * c.head_dim);
  const auto queries = test::random_floats(random, 400 * token);
  const auto whole =
      test::attend_prompt_all(cache, 0, c.n_heads, first_pos, queries, scale_of(c), swa_window);
  for (size_t start = 0; start < 400;) {
    const size_t count =
        std::min<size_t>(400 - start, std::uniform_int_distribution<size_t>(1, 90)(random));
    const std::span<const float> part(queries.data() + start * token, count * token);
    const auto out = test::attend_prompt_all(
        cache, 0, c.n_heads, first_pos + static_cast<int>(start), part, scale_of(c), swa_window);
    ASSERT_EQ(0, std::memcmp(out.data(), whole.data() + start * token, out.size() * sizeof(float)));
    start += count;
  }
}

TEST(Attend, PromptDoesNotDependOnHowTheQueriesAreCut) {
  for (const int swa_window : {0, 7, 500}) {
    expect_same_bits_however_cut(swa_window);
  }
}

TEST(Attend, EveryInstructionSetGivesTheSameBits) {
  std::mt19937 random(5);
  for (Case c : kShapes) {
    c.n_rows = 700;
    c.swa_window = c.n_kv_heads == 1 ? 0 : 300;
    const cache::Cache cache = ragged_cache(random, c);
    const auto queries =
        test::random_floats(random, static_cast<size_t>(5 * c.n_heads * c.head_dim));
    const std::span<const float> one(queries.data(), static_cast<size_t>(c.n_heads * c.head_dim));
    std::vector<float> prompt;
    std::vector<float> decode;
    test::for_every_instruction_set([&](const std::string& name) {
      const auto p =
          test::attend_prompt_all(cache, 0, c.n_heads, 695, queries, scale_of(c), c.swa_window);
      const auto d =
          test::attend_decode_all(cache, 0, c.n_heads, 700, one, scale_of(c), c.swa_window);
      if (prompt.empty()) {
        prompt = p;
        decode = d;
      }
      EXPECT_EQ(0, std::memcmp(prompt.data(), p.data(), p.size() * sizeof(float))) << name;
      EXPECT_EQ(0, std::memcmp(decode.data(), d.data(), d.size() * sizeof(float))) << name;
    });
  }
}

TEST(Attend, AQueryWithoutARowGivesZeros) {
  Case c{64, 3, 1, 4, RowType::kF32, RowType::kF32};
  cache::Cache cache(shape_of(c));
  const std::vector<float> queries(static_cast<size_t>(c.n_heads * c.head_dim), 1.0F);
  for (const float x : test::attend_decode_all(cache, 0, c.n_heads, 3, queries, 1.0F)) {
    EXPECT_EQ(x, 0.0F);
  }
  for (const float x : test::attend_prompt_all(cache, 0, c.n_heads, 3, queries, 1.0F)) {
    EXPECT_EQ(x, 0.0F);
  }
}

}  // namespace
}  // namespace winnow
