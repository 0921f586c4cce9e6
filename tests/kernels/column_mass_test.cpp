// Column mass: against sums in double, and the same bits however the queries come.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/cache_ops.h"
#include "oracle/attention_oracle.h"
#include "support/attend.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::RowType;

struct Case {
  int head_dim, n_heads, n_kv_heads;
  RowType type;

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  size_t token() const { return static_cast<size_t>(n_heads * head_dim); }
};

constexpr Case kCases[] = {{64, 9, 3, RowType::kF32},
                           {64, 14, 2, RowType::kF16},
                           {128, 4, 4, RowType::kBf16},
                           {20, 5, 5, RowType::kF16}};

// Rows at positions 0 … n-1, some of them hidden.
cache::Cache random_cache(unsigned seed, const Case& c, int n) {
  std::mt19937 random(seed);
  cache::Cache cache({.n_layers = 1,
                      .n_kv_heads = c.n_kv_heads,
                      .head_dim = c.head_dim,
                      .key_type = c.type,
                      .value_type = c.type,
                      .max_rows = n,
                      .stores_mass = true});
  const auto n_elements = static_cast<size_t>(n * c.n_kv_heads * c.head_dim);
  test::append_tokens(cache, 0, 0, test::random_floats(random, n_elements),
                      test::random_floats(random, n_elements));
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    cache.hide_others(0, kv_head, test::random_slots(random, n, 1 + n * 2 / 3));
  }
  return cache;
}

std::vector<int64_t> mass_of(cache::Cache& cache) {
  std::vector<int64_t> all;
  for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
    const int64_t* const mass = cache.mass(0, kv_head);
    all.insert(all.end(), mass, mass + cache.rows(0, kv_head).n);
  }
  return all;
}

// The queries of the last tokens in chunks of a size; decoded ones one at a time, all as that of the newest row.
std::vector<int64_t> mass_received(const Case& c, int n, std::span<const float> q, int chunk,
                                   bool is_prompt) {
  cache::Cache cache = random_cache(3, c, n);
  const int n_tokens = static_cast<int>(q.size() / c.token());
  for (int token = 0; token < n_tokens; token += chunk) {
    const int pos = n - n_tokens + token;
    const auto part = q.subspan(static_cast<size_t>(token) * c.token(),
                                static_cast<size_t>(std::min(chunk, n_tokens - token)) * c.token());
    if (is_prompt) {
      test::attend_prompt_all(cache, 0, c.n_heads, pos, part, c.scale());
    } else {
      test::attend_decode_all(cache, 0, c.n_heads, n - 1, part, c.scale());
    }
  }
  return mass_of(cache);
}

// The same, in double.
std::vector<double> plain_mass(const Case& c, int n, std::span<const float> q, bool is_prompt) {
  const cache::Cache cache = random_cache(3, c, n);
  const int n_tokens = static_cast<int>(q.size() / c.token());
  const auto dim = static_cast<size_t>(c.head_dim);
  std::vector<double> all;
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    const cache::HeadRows rows = cache.rows(0, kv_head);
    std::vector<double> mass(static_cast<size_t>(rows.n));
    const int group = c.n_heads / c.n_kv_heads;
    for (int i = 0; i < n_tokens * group; ++i) {
      const int token = i / group;
      const float* const query = q.data() + static_cast<size_t>(token) * c.token() +
                                 static_cast<size_t>(kv_head * group + i % group) * dim;
      std::vector<double> weights(mass.size());
      double sum = 0;
      for (size_t j = 0; j < weights.size(); ++j) {
        if (rows.positions[j] <= (is_prompt ? n - n_tokens + token : n - 1) &&
            (rows.hidden == nullptr || rows.hidden[j] == cache::kVisible)) {
          double dot = 0;
          for (size_t e = 0; e < dim; ++e) {
            dot += oracle::row_element(rows.keys, rows.key_type, j * dim + e) *
                   static_cast<double>(query[e]);
          }
          weights[j] = std::exp(dot * static_cast<double>(c.scale()));
          sum += weights[j];
        }
      }
      for (size_t j = 0; j < weights.size(); ++j) {
        mass[j] += sum > 0 ? weights[j] / sum : 0;
      }
    }
    all.insert(all.end(), mass.begin(), mass.end());
  }
  return all;
}

TEST(ColumnMass, IsTheSumOfTheSoftmaxWeights) {
  std::mt19937 random(1);
  for (const Case& c : kCases) {
    for (const int n : {1, 30, 300, 700, 4500}) {
      const int n_tokens = std::min(n, 60);
      const auto q = test::random_floats(random, static_cast<size_t>(n_tokens) * c.token());
      for (const bool is_prompt : {true, false}) {
        const std::vector<double> expected = plain_mass(c, n, q, is_prompt);
        const auto mass = mass_received(c, n, q, is_prompt ? n_tokens : 1, is_prompt);
        for (size_t i = 0; i < mass.size(); ++i) {
          const double received = static_cast<double>(mass[i]) / kernels::kMassScale;
          ASSERT_NEAR(received, expected[i], 5e-6 * expected[i] + 1e-9)
              << c.head_dim << " " << n << " " << i << " " << is_prompt;
        }
      }
    }
  }
}

TEST(ColumnMass, DoesNotDependOnChunksNorOnTheInstructionSet) {
  std::mt19937 random(2);
  for (const Case& c : kCases) {
    for (const int n : {90, 600, 4200}) {  // past the first change of block length
      const auto q = test::random_floats(random, 80 * c.token());
      const auto whole = mass_received(c, n, q, 80, true);
      const auto decoded = mass_received(c, n, q, 1, false);
      for (const int chunk : {1, 7, 33}) {
        ASSERT_EQ(mass_received(c, n, q, chunk, true), whole) << n << " " << chunk;
      }
      test::for_every_instruction_set([&](const std::string& name) {
        ASSERT_EQ(mass_received(c, n, q, 19, true), whole) << name;
        ASSERT_EQ(mass_received(c, n, q, 1, false), decoded) << name;
      });
    }
  }
}

TEST(ColumnMass, AQueryThatIsNoNumberPaysNothing) {
  const Case c{64, 2, 1, RowType::kF32};
  std::mt19937 random(4);
  auto q = test::random_floats(random, 10 * c.token());
  const auto others = std::span<const float>(q).subspan(c.token());
  const auto without = [&](bool is_prompt) { return plain_mass(c, 50, others, is_prompt); };
  const std::vector<double> expected[] = {without(false), without(true)};
  std::fill_n(q.begin(), c.token(), std::numeric_limits<float>::quiet_NaN());
  for (const bool is_prompt : {true, false}) {
    const auto mass = mass_received(c, 50, q, 1, is_prompt);
    for (size_t i = 0; i < mass.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(mass[i]) / kernels::kMassScale,
                  expected[is_prompt ? 1 : 0][i], 1e-6);
    }
  }
}

}  // namespace
}  // namespace winnow
