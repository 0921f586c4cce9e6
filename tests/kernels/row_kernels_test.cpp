// Arithmetic on rows for scoring, against plain loops over the rows as stored.

#include "kernels/row_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/attention_oracle.h"
#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::RowType;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Scratch scratch;

// One head of random rows of a type, and some of its slots.
struct Sample {
  cache::Cache cache;
  std::vector<int> slots;
  std::vector<float> channels;  // [head_dim]
  std::vector<float> weights;   // [n_slots], some zero

  Sample(int head_dim, RowType type, int n, int n_slots)
      : cache({.n_layers = 1,
               .n_kv_heads = 1,
               .head_dim = head_dim,
               .key_type = type,
               .value_type = type,
               .max_rows = n,
               .stores_scores = false}) {
    std::mt19937 random(static_cast<unsigned>(head_dim + n));
    const auto keys = test::random_floats(random, static_cast<size_t>(n * head_dim));
    test::append_tokens(cache, 0, 0, keys, keys);
    slots = test::random_slots(random, n, n_slots);
    channels = test::random_floats(random, static_cast<size_t>(head_dim));
    weights = test::random_floats(random, static_cast<size_t>(n_slots));
    for (size_t i = 0; i < weights.size(); i += 5) {
      weights[i] = 0.0F;
    }
  }

  kernels::RowVectors keys() const { return kernels::keys_of(cache.rows(0, 0)); }
  size_t dim() const { return channels.size(); }

  float element(size_t i, size_t channel) const {
    const cache::HeadRows rows = cache.rows(0, 0);
    return static_cast<float>(oracle::row_element(rows.keys, rows.key_type,
                                                  static_cast<size_t>(slots[i]) * dim() + channel));
  }
};

void for_every_sample(const std::function<void(const Sample&)>& body) {
  for (const int dim : {1, 3, 20, 64, 80, 128, 300}) {
    for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
      for (const int n : {1, 70, 200}) {
        SCOPED_TRACE(std::to_string(dim) + " " + row_type_name(type) + " " + std::to_string(n));
        body(Sample(dim, type, n, (n * 9 + 9) / 10));
      }
    }
  }
}

// Sums in 32 chains, each over the channels c = chain (mod 32), then the fixed tree.
float fold(const float (&chains)[32]) {
  float q[8];
  for (int j = 0; j < 8; ++j) {
    q[j] = (chains[j] + chains[j + 8]) + (chains[j + 16] + chains[j + 24]);
  }
  return ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
}

TEST(RowKernels, DotsAreCanonical) {
  for_every_sample([](const Sample& sample) {
    std::vector<float> dots(sample.slots.size());
    kernels::row_dots(sample.keys(), sample.slots, sample.channels, dots, scratch);
    for (size_t i = 0; i < dots.size(); ++i) {
      float chains[32] = {};
      for (size_t c = 0; c < sample.dim(); ++c) {
        chains[c % 32] = std::fma(sample.element(i, c), sample.channels[c], chains[c % 32]);
      }
      ASSERT_EQ(dots[i], fold(chains));
    }
  });
}

TEST(RowKernels, WeightedSumAddsBlocksOf64Slots) {
  for_every_sample([](const Sample& sample) {
    std::vector<float> sum(sample.dim());
    kernels::weighted_sum(sample.keys(), sample.slots, sample.weights, sum, scratch);
    for (size_t c = 0; c < sum.size(); ++c) {
      float total = 0;
      for (size_t first = 0; first < sample.slots.size(); first += 64) {
        float block = 0;
        for (size_t i = first; i < std::min(first + 64, sample.slots.size()); ++i) {
          block = std::fma(sample.weights[i], sample.element(i, c), block);
        }
        total += block;
      }
      ASSERT_EQ(sum[c], total);
    }
  });
}

TEST(RowKernels, BoundsAreTheLeastAndTheGreatestElement) {
  for_every_sample([](const Sample& sample) {
    std::vector<float> low(sample.dim());
    std::vector<float> high(sample.dim());
    kernels::channel_bounds(sample.keys(), sample.slots, low, high, scratch);
    for (size_t c = 0; c < low.size(); ++c) {
      float least = kInfinity;
      float greatest = -kInfinity;
      for (size_t i = 0; i < sample.slots.size(); ++i) {
        least = std::min(least, sample.element(i, c));
        greatest = std::max(greatest, sample.element(i, c));
      }
      ASSERT_EQ(low[c], least);
      ASSERT_EQ(high[c], greatest);
    }
  });
}

TEST(RowKernels, DeviationsAreThoseOfTheScaledChannels) {
  for_every_sample([](const Sample& sample) {
    const std::vector<float>& offset = sample.channels;
    std::vector<float> scale = sample.channels;
    std::reverse(scale.begin(), scale.end());
    std::vector<float> deviations(sample.slots.size());
    kernels::channel_deviations(sample.keys(), sample.slots, offset, scale, deviations, scratch);
    const auto n = static_cast<double>(sample.dim());
    for (size_t i = 0; i < deviations.size(); ++i) {
      double sum = 0;
      double squares = 0;
      for (size_t c = 0; c < sample.dim(); ++c) {
        const double x =
            (static_cast<double>(sample.element(i, c)) - static_cast<double>(offset[c])) *
            static_cast<double>(scale[c]);
        sum += x;
        squares += x * x;
      }
      const double variance = (squares - sum * sum / n) / std::max(n - 1, 1.0);
      ASSERT_NEAR(deviations[i], std::sqrt(std::max(variance, 0.0)), 2e-6 * std::sqrt(squares));
    }
  });
}

TEST(RowKernels, EveryInstructionSetGivesTheSameBits) {
  for_every_sample([](const Sample& sample) {
    std::vector<float> first;
    test::for_every_instruction_set([&](const std::string& name) {
      std::vector<float> results(3 * sample.slots.size() + 3 * sample.dim());
      std::span<float> rest(results);
      const auto next = [&](size_t n) {
        const std::span<float> part = rest.first(n);
        rest = rest.subspan(n);
        return part;
      };
      const size_t n_slots = sample.slots.size();
      kernels::row_dots(sample.keys(), sample.slots, sample.channels, next(n_slots), scratch);
      kernels::weighted_sum(sample.keys(), sample.slots, sample.weights, next(sample.dim()),
                            scratch);
      const std::span<float> low = next(sample.dim());
      kernels::channel_bounds(sample.keys(), sample.slots, low, next(sample.dim()), scratch);
      const std::span<float> deviations = next(n_slots);
      kernels::channel_deviations(sample.keys(), sample.slots, low, sample.channels, deviations,
                                  scratch);
      const std::span<float> soft = next(n_slots);
      std::copy(deviations.begin(), deviations.end(), soft.begin());
      kernels::softmax(soft);
      if (first.empty()) {
        first = results;
      }
      ASSERT_EQ(first, results) << name;
    });
  });
}

TEST(RowKernels, BoundsLeaveNanOut) {
  const std::vector<float> rows{1, kNan, kNan, 5, kNan, kNan, 3, 7, kNan};
  const kernels::RowVectors vectors{
      .elements = std::as_bytes(std::span(rows)).data(), .type = RowType::kF32, .head_dim = 3};
  std::vector<float> low(3);
  std::vector<float> high(3);
  kernels::channel_bounds(vectors, std::vector<int>{0, 1, 2}, low, high, scratch);
  EXPECT_EQ(low, (std::vector<float>{1, 7, kInfinity}));
  EXPECT_EQ(high, (std::vector<float>{5, 7, -kInfinity}));
}

TEST(RowKernels, SquaredNormsAreCanonical) {
  for_every_sample([](const Sample& s) {
    std::vector<float> expected;
    for (size_t i = 0; i < s.slots.size(); ++i) {
      float chains[32] = {};
      for (size_t c = 0; c < s.dim(); ++c) {
        chains[c % 32] = std::fma(s.element(i, c), s.element(i, c), chains[c % 32]);
      }
      expected.push_back(fold(chains));
    }
    test::for_every_instruction_set([&](const std::string& name) {
      std::vector<float> norms(s.slots.size());
      kernels::squared_norms(s.keys(), s.slots, norms, scratch);
      EXPECT_EQ(norms, expected) << name;
    });
  });
}

TEST(RowKernels, QuadraticFormsAreTheSpecifiedChains) {
  for_every_sample([](const Sample& s) {
    std::mt19937 random(3);
    std::vector<float> upper = test::random_floats(random, s.dim() * s.dim());
    for (size_t a = 0; a < s.dim(); ++a) {
      std::fill_n(upper.begin() + static_cast<std::ptrdiff_t>(a * s.dim()), a, 0.0F);
    }
    std::vector<float> expected;
    for (size_t i = 0; i < s.slots.size(); ++i) {
      float total = 0;
      for (size_t a = 0; a < s.dim(); ++a) {
        float sum = s.channels[a];
        for (size_t b = a; b < s.dim(); ++b) {
          sum = std::fma(upper[a * s.dim() + b], s.element(i, b), sum);
        }
        total = std::fma(s.element(i, a), sum, total);
      }
      expected.push_back(total);
    }
    test::for_every_instruction_set([&](const std::string& name) {
      std::vector<float> values(s.slots.size());
      kernels::quadratic_form(s.keys(), s.slots, {.linear = s.channels, .upper = upper}, values,
                              scratch);
      EXPECT_EQ(values, expected) << name;
    });
  });
}

// The rows of every third slot, each beside all others; some candidates and rows equal, and some not finite.
void check_nearest(const Sample& s) {
  std::vector<size_t> rows;  // indices into s.slots
  std::vector<size_t> others;
  for (size_t i = 0; i < s.slots.size(); ++i) {
    (i % 3 == 0 ? rows : others).push_back(i);
    if (i % 7 == 0) {
      others.push_back(i / 2);  // the same row again
    }
  }
  const auto slots_of = [&s](const std::vector<size_t>& indices) {
    std::vector<int> slots;
    std::ranges::transform(indices, std::back_inserter(slots),
                           [&](size_t i) { return s.slots[i]; });
    return slots;
  };
  const std::vector<int> slots = slots_of(rows);
  const std::vector<int> candidates = slots_of(others);
  std::mt19937 random(9);
  std::vector<float> slot_scales = test::random_floats(random, slots.size());
  std::vector<float> scales = test::random_floats(random, candidates.size());
  for (size_t i = 0; i < scales.size(); i += 11) {
    scales[i] = i % 2 == 0 ? kNan : -kInfinity;
  }
  slot_scales.back() = kNan;
  std::vector<kernels::Nearest> expected(slots.size());
  for (size_t i = 0; i < slots.size(); ++i) {
    for (size_t j = 0; j < candidates.size(); ++j) {
      float dot = 0;
      for (size_t c = 0; c < s.dim(); ++c) {
        dot = std::fma(s.element(rows[i], c) * slot_scales[i], s.element(others[j], c), dot);
      }
      if (dot * scales[j] > expected[i].cosine) {
        expected[i] = {.index = static_cast<int>(j), .cosine = dot * scales[j]};
      }
    }
  }
  EXPECT_EQ(expected.back().index, kernels::kNoRow);
  test::for_every_instruction_set([&](const std::string& name) {
    std::vector<kernels::Nearest> nearest(slots.size());
    kernels::nearest_rows(s.keys(), slots, slot_scales, candidates, scales, nearest, scratch);
    for (size_t i = 0; i < slots.size(); ++i) {
      ASSERT_EQ(nearest[i].index, expected[i].index) << name << ' ' << i;
      ASSERT_EQ(nearest[i].cosine, expected[i].cosine) << name << ' ' << i;
    }
  });
}

TEST(RowKernels, NearestRowsAreTheFirstOfTheGreatestCosines) {
  for_every_sample(check_nearest);
  check_nearest(Sample(5, RowType::kF16, 3000, 2700));  // several panels
}

TEST(RowKernels, InverseNormsAreThoseOfNumbersAboveZero) {
  std::vector<float> squares(37, 4.0F);
  std::fill_n(squares.begin(), 7, 0.0F);
  squares[1] = -1.0F;
  squares[2] = kInfinity;
  squares[36] = kNan;
  squares[20] = 7.0F;
  std::vector<float> expected(37, 0.5F);
  std::fill_n(expected.begin(), 7, 0.0F);
  expected[36] = 0.0F;
  expected[20] = 1.0F / std::sqrt(7.0F);
  test::for_every_instruction_set([&](const std::string& name) {
    std::vector<float> inverse = squares;
    kernels::inverse_norms(inverse);
    EXPECT_EQ(inverse, expected) << name;
  });
}

TEST(RowKernels, CountsWhatIsBetter) {
  std::mt19937 random(5);
  for (const size_t n : {0U, 1U, 15U, 16U, 33U, 128U, 300U}) {
    std::vector<float> x = test::random_floats(random, n);
    for (size_t i = 0; i < n; i += 2) {
      x[i] = std::round(2 * x[i]);  // ties, of both zeros too
    }
    std::vector<int32_t> expected(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        expected[i] += x[j] > x[i] || (x[j] == x[i] && j < i) ? 1 : 0;
      }
    }
    test::for_every_instruction_set([&](const std::string& name) {
      std::vector<int32_t> counts(n, -1);
      kernels::count_better(x, counts);
      EXPECT_EQ(counts, expected) << name;
    });
  }
}

TEST(RowKernels, SoftmaxSumsToOneAndLeavesNanOut) {
  std::vector<float> x{1.0F, kNan, 3.0F, -500.0F, 2.0F};
  kernels::softmax(x);
  const double sum = std::exp(-2.0) + 1.0 + std::exp(-1.0);
  EXPECT_NEAR(x[0], std::exp(-2.0) / sum, 1e-7);
  EXPECT_TRUE(std::isnan(x[1]));
  EXPECT_NEAR(x[2], 1.0 / sum, 1e-7);
  EXPECT_EQ(x[3], 0.0F);
  EXPECT_NEAR(x[4], std::exp(-1.0) / sum, 1e-7);
  std::vector<float> none;
  kernels::softmax(none);
  std::vector<float> nans{kNan, kNan};
  kernels::softmax(nans);
  EXPECT_TRUE(std::isnan(nans[0]) && std::isnan(nans[1]));
}

}  // namespace
}  // namespace winnow
