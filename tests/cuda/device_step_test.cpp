// A cache whose rows lie on the GPU: what is appended, attended to and kept, against plain loops on the host.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "cuda/device_sequence.h"
#include "cuda/gpu.h"

namespace winnow {
namespace {

using Step = test::OnGpu;
using test::activations;
using test::Case;
using test::expect_same_bits;
using test::kCases;
using test::name_of;
using Sequence = test::DeviceSequence;

TEST_F(Step, PromptsAndGeneratedTokensAgreeWithDoubleLoops) {
  double worst = 0;
  for (const Case& c : kCases) {
    Sequence sequence(c);
    for (const int n : {1, 63, 66, 700, 1500, 5}) {
      const int first = sequence.n_fed();
      const double error = sequence.error_of(sequence.feed(n, true), first);
      EXPECT_LE(error, 1e-5) << name_of(c) << " " << n << " after " << first;
      worst = std::max(worst, error);
    }
    for (int i = 0; i < 3; ++i) {
      const int first = sequence.n_fed();
      EXPECT_LE(sequence.error_of(sequence.feed(1, false), first), 1e-5) << name_of(c);
    }
    sequence.cut(5, /*hides=*/false);
    for (const bool is_prompt : {true, false}) {
      const int first = sequence.n_fed();
      const double error = sequence.error_of(sequence.feed(is_prompt ? 200 : 1, is_prompt), first);
      EXPECT_LE(error, 1e-5) << name_of(c) << ", cut";
      worst = std::max(worst, error);
    }
  }
  std::printf("worst relative error %.2g\n", worst);
}

TEST_F(Step, HowAPromptIsCutDoesNotMatter) {
  for (const Case& c : kCases) {
    Sequence whole(c);
    const std::vector<float> expected = whole.feed_in(1300, 1300);
    for (const int n_at_once : {1000, 512, 97, 64}) {
      Sequence cut(c);
      expect_same_bits(cut.feed_in(1300, n_at_once), expected,
                       name_of(c) + " " + std::to_string(n_at_once));
    }
  }
}

TEST_F(Step, EvictedEqualsHiddenToTheBit) {
  for (const Case& c : kCases) {
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      std::array<std::vector<float>, 2> of_prompt;
      std::array<std::vector<float>, 2> of_generated;
      for (const bool hides : {false, true}) {
        Sequence sequence(c);
        sequence.infinite_at = seed == 3 ? 17 : -1;  // it may go, or stay: then both have it
        sequence.feed_in(1000 + 300 * static_cast<int>(seed), 1500);
        sequence.cut(seed, hides);
        of_prompt[hides ? 1 : 0] = sequence.feed(130, true);
        of_generated[hides ? 1 : 0] = sequence.feed(1, false);
      }
      expect_same_bits(of_prompt[0], of_prompt[1], name_of(c) + ", prompt");
      expect_same_bits(of_generated[0], of_generated[1], name_of(c) + ", generated");
    }
  }
}

TEST_F(Step, RowsThatStayAreTheOnesAppended) {
  for (const Case& c : kCases) {
    Sequence sequence(c);
    sequence.feed_in(2000, 1500);
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::vector<Sequence::Copy> before;
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        before.push_back(sequence.copy(kv_head));
      }
      const std::vector<int32_t> old_positions(before[0].view.positions,
                                               before[0].view.positions + before[0].view.n);
      const std::vector<float> old_scores = sequence.scores();
      sequence.cut(11 + static_cast<uint32_t>(repeat), /*hides=*/false);
      const Sequence::Copy after = sequence.copy(0);
      const std::vector<float> scores = sequence.scores();
      const size_t row_bytes = static_cast<size_t>(c.head_dim) * 2;
      for (int slot = 0; slot < after.view.n; ++slot) {
        const auto at = static_cast<size_t>(
            std::ranges::lower_bound(old_positions, after.view.positions[slot]) -
            old_positions.begin());
        const auto to = static_cast<size_t>(slot);
        ASSERT_EQ(old_positions[at], after.view.positions[slot]);
        ASSERT_EQ(std::memcmp(after.keys.data() + to * row_bytes,
                              before[0].keys.data() + at * row_bytes, row_bytes),
                  0);
        ASSERT_EQ(std::memcmp(after.values.data() + to * row_bytes,
                              before[0].values.data() + at * row_bytes, row_bytes),
                  0);
        ASSERT_EQ(scores[to], old_scores[at]);
      }
      sequence.feed(40, true);
    }
  }
}

// The canonical sum of squares, in plain loops (kernels/cpu/rows-inl.h).
float squared_norm(const std::vector<std::byte>& rows, cache::RowType type, size_t first,
                   size_t head_dim) {
  std::array<float, 32> p{};
  for (size_t d = 0; d < head_dim; ++d) {
    const auto x = static_cast<float>(oracle::row_element(rows.data(), type, first + d));
    p[d % 32] = std::fma(x, x, p[d % 32]);
  }
  std::array<float, 8> q{};
  for (size_t j = 0; j < 8; ++j) {
    q[j] = (p[j] + p[j + 8]) + (p[j + 16] + p[j + 24]);
  }
  return ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
}

TEST_F(Step, AppendedElementsAreTheNearestAndScoresCanonical) {
  for (const Case& c : kCases) {
    Sequence sequence(c);
    sequence.feed(300, true);
    const std::vector<float> scores = sequence.scores();
    const auto dim = static_cast<size_t>(c.head_dim);
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const Sequence::Copy held = sequence.copy(kv_head);
      for (size_t row = 0; row < 300; ++row) {
        const std::vector<float> given =
            activations(static_cast<int>(row), static_cast<size_t>(c.n_kv_heads) * dim, 2, 1);
        EXPECT_EQ(scores[static_cast<size_t>(kv_head) * 300 + row],
                  squared_norm(held.keys, c.type, row * dim, dim));
        for (size_t d = 0; d < dim; ++d) {
          const double x = static_cast<double>(given[static_cast<size_t>(kv_head) * dim + d]);
          const double stored = oracle::row_element(held.keys.data(), c.type, row * dim + d);
          const int digits = c.type == cache::RowType::kF16 ? 11 : 8;
          const int exponent = std::max(std::ilogb(x), c.type == cache::RowType::kF16 ? -14 : -126);
          ASSERT_LE(std::abs(stored - x), std::ldexp(0.5, exponent + 1 - digits)) << x;
        }
      }
    }
  }
}

TEST_F(Step, CountsWhatDoesNotFit) {
  const Case c{64, 2, 1, cache::RowType::kF16};
  Sequence sequence(c);
  sequence.infinite_at = 3;
  sequence.feed(8, true);
  EXPECT_EQ(sequence.cache().append_counts().nonfinite_values, 64);
  EXPECT_EQ(sequence.cache().append_counts().nonfinite_keys, 0);
  EXPECT_EQ(sequence.cache().append_counts().saturated, 0);
}

// Rows kept have a home of their own size, whatever was read before.
TEST_F(Step, TheDeviceHoldsWhatIsKept) {
  const Case c{128, 8, 8, cache::RowType::kF16};
  Sequence sequence(c);
  for (int i = 0; i < 4; ++i) {
    sequence.feed(1400, true);
  }
  constexpr size_t kGranule = size_t{2} << 20;
  constexpr size_t kRowBytes = 8 * (2 * 256 + 8);  // of all heads
  EXPECT_GE(sequence.cache().committed_bytes(), 5600 * kRowBytes);
  std::vector<int> slots(600);
  std::iota(slots.begin(), slots.end(), 0);
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    sequence.cache().keep(0, kv_head, slots);
  }
  const int first = sequence.n_fed();
  EXPECT_LE(sequence.error_of(sequence.feed(1, false), first), 1e-5);
  EXPECT_LE(sequence.cache().committed_bytes(), 740 * kRowBytes + 2 * kGranule);
}

TEST_F(Step, RefusesWhatHasNoKernel) {
  const kernels::AttendShape attention{.n_heads = 2, .n_kv_heads = 2, .head_dim = 48, .scale = 1};
  cache::CacheShape shape{
      .n_layers = 1, .n_kv_heads = 2, .head_dim = 48, .max_rows = 10, .is_remote = true};
  EXPECT_THROW(kernels::make_device_step(attention, shape), Error);
  shape.head_dim = 64;
  shape.value_type = cache::RowType::kBf16;
  EXPECT_THROW(kernels::make_device_step(attention, shape), Error);
}

}  // namespace
}  // namespace winnow
