// Attention peaks: against plain loops in double, and the same bits on every instruction set and for any cut into tiles.

#include "kernels/attention_peaks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/scratch.h"
#include "oracle/attention_oracle.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

// Queries of the last tokens of a head's rows, and the rows that are scored.
struct Case {
  int head_dim, group, n_rows, n_tokens, first_slot, n_scored;
  cache::RowType type;

  float scale() const { return 1.0F / std::sqrt(static_cast<float>(head_dim)); }
  int first_pos() const { return n_rows - n_tokens; }
};

constexpr Case kCases[] = {{64, 3, 90, 40, 4, 40, cache::RowType::kF16},
                           {64, 7, 700, 20, 0, 400, cache::RowType::kF32},
                           {128, 1, 33, 1, 2, 30, cache::RowType::kBf16},
                           {20, 2, 301, 50, 10, 291, cache::RowType::kF16},
                           {8, 1, 1, 1, 0, 1, cache::RowType::kF32}};

struct Input {
  explicit Input(const Case& c)
      : cache({.n_layers = 1,
               .n_kv_heads = 1,
               .head_dim = c.head_dim,
               .key_type = c.type,
               .value_type = c.type,
               .max_rows = c.n_rows}) {
    std::mt19937 random(static_cast<unsigned>(c.n_rows));
    const auto n_elements = static_cast<size_t>(c.n_rows * c.head_dim);
    test::append_tokens(cache, 0, 0, test::random_floats(random, n_elements),
                        test::random_floats(random, n_elements));
    q = test::random_floats(random, static_cast<size_t>(c.n_tokens * c.group * c.head_dim));
    for (int i = 0; i < c.n_tokens; ++i) {
      factors.push_back(std::uniform_real_distribution<float>(0.1F, 3)(random));
    }
  }

  cache::Cache cache;
  std::vector<float> q;        // [n_tokens, group, head_dim]
  std::vector<float> factors;  // [n_tokens]
};

// Raises the peaks by what n_lanes lanes from the first one on attend to, in tiles of at most n_most.
void raise_peaks(const Case& c, const Input& input, bool has_factors, int n_lanes, int n_most,
                 std::vector<float>& peaks) {
  std::vector<float> scratch(kernels::peaks_scratch_floats(c.head_dim, c.n_rows) +
                             kLineBytes / sizeof(float));
  for (int lane = 0; lane < n_lanes; lane += n_most) {
    kernels::raise_attention_peaks(input.cache.rows(0, 0),
                                   {.q = input.q.data(),
                                    .out = nullptr,
                                    .token_stride = static_cast<size_t>(c.group * c.head_dim),
                                    .gqa_group_size = c.group,
                                    .swa_window = 0,
                                    .first_pos = c.first_pos(),
                                    .first_lane = lane,
                                    .n_lanes = std::min(n_most, n_lanes - lane)},
                                   c.scale(), has_factors ? input.factors.data() : nullptr,
                                   c.first_slot, peaks, align_to_line(scratch.data()));
  }
}

std::vector<float> peaks_of(const Case& c, const Input& input, bool has_factors,
                            int n_most = kernels::prompt_tile_lanes()) {
  std::vector<float> peaks(static_cast<size_t>(c.n_scored));
  raise_peaks(c, input, has_factors, c.n_tokens * c.group, n_most, peaks);
  return peaks;
}

std::vector<double> plain_peaks(const Case& c, const Input& input, bool has_factors) {
  const cache::HeadRows rows = input.cache.rows(0, 0);
  const auto dim = static_cast<size_t>(c.head_dim);
  std::vector<double> peaks(static_cast<size_t>(c.n_scored));
  for (int lane = 0; lane < c.n_tokens * c.group; ++lane) {
    const int token = lane / c.group;
    std::vector<double> weights(static_cast<size_t>(c.first_pos() + token + 1));
    double sum = 0;
    for (size_t j = 0; j < weights.size(); ++j) {
      double dot = 0;
      for (size_t e = 0; e < dim; ++e) {
        dot += oracle::row_element(rows.keys, rows.key_type, j * dim + e) *
               static_cast<double>(input.q[static_cast<size_t>(lane) * dim + e]);
      }
      weights[j] = std::exp(dot * static_cast<double>(c.scale()));
      sum += weights[j];
    }
    const double factor =
        has_factors ? static_cast<double>(input.factors[static_cast<size_t>(token)]) : 1;
    for (size_t i = 0; i < peaks.size(); ++i) {
      const size_t j = static_cast<size_t>(c.first_slot) + i;
      if (j < weights.size()) {
        peaks[i] = std::max(peaks[i], factor * weights[j] / sum);
      }
    }
  }
  return peaks;
}

TEST(AttentionPeaks, AreTheGreatestSoftmaxWeights) {
  test::for_every_instruction_set([](const std::string& name) {
    for (const Case& c : kCases) {
      const Input input(c);
      for (const bool has_factors : {false, true}) {
        const std::vector<float> peaks = peaks_of(c, input, has_factors);
        const std::vector<double> expected = plain_peaks(c, input, has_factors);
        for (size_t i = 0; i < peaks.size(); ++i) {
          ASSERT_NEAR(static_cast<double>(peaks[i]), expected[i], 1e-5 * expected[i] + 1e-9)
              << name << ", " << c.n_rows << " rows, row " << i;
        }
      }
    }
  });
}

TEST(AttentionPeaks, HaveTheSameBitsForAnyTilesAndInstructionSet) {
  for (const Case& c : kCases) {
    const Input input(c);
    const std::vector<float> expected = peaks_of(c, input, true);
    test::for_every_instruction_set([&](const std::string& name) {
      for (const int n_most : {1, 5, kernels::prompt_tile_lanes()}) {
        EXPECT_EQ(peaks_of(c, input, true, n_most), expected) << name;
      }
    });
  }
}

TEST(AttentionPeaks, AreOnlyRaised) {
  const Case& c = kCases[0];
  const Input input(c);
  std::vector<float> peaks(static_cast<size_t>(c.n_scored), 0.5F);
  peaks.back() = 0;
  raise_peaks(c, input, /*has_factors=*/false, /*n_lanes=*/1, /*n_most=*/1, peaks);
  EXPECT_GE(*std::ranges::min_element(peaks), 0.0F);
  EXPECT_EQ(std::ranges::count_if(std::span(peaks).first(peaks.size() - 1),
                                  [](float peak) { return peak < 0.5F; }),
            0);
  EXPECT_GT(peaks.back(), 0.0F);
}

// A query that is not a number pays nothing, and takes nothing from the others.
TEST(AttentionPeaks, WhatIsNoNumberCountsAsNothing) {
  const Case& c = kCases[0];
  Input input(c);
  const std::vector<float> whole = peaks_of(c, input, false);
  input.q[0] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> without = peaks_of(c, input, false);
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_LE(without[i], whole[i]);
    EXPECT_GE(without[i], 0.0F);
  }
  std::ranges::fill(input.q, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(peaks_of(c, input, false), std::vector<float>(static_cast<size_t>(c.n_scored)));
}

}  // namespace
}  // namespace winnow
