// What attention leaves behind on a GPU: column mass and what the last queries attend to, against sums in double.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "cuda/device_sequence.h"
#include "cuda/gpu.h"

namespace winnow {
namespace {

using test::Case;
using test::kCases;
using test::name_of;
using Sequence = test::DeviceSequence;
using Statistics = test::OnGpu;

// In shares of the largest.
double worst_difference(std::span<const int64_t> mass, double unit,
                        std::span<const double> expected) {
  double largest = 1e-30;
  double off = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    largest = std::max(largest, expected[i]);
    off = std::max(off, std::abs(static_cast<double>(mass[i]) / unit - expected[i]));
  }
  return off / largest;
}

TEST_F(Statistics, ColumnMassAgreesWithDoubleLoops) {
  double worst = 0;
  for (const Case& c : kCases) {
    if (c.swa_window > 0) {
      continue;  // of layers without a window alone
    }
    Sequence sequence(c, {.mass = true});
    sequence.feed(70, true);
    sequence.feed(257, true);
    sequence.feed(1, false);
    sequence.feed(1, false);
    const std::vector<int64_t> mass = sequence.mass();
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const std::vector<double> expected =
          sequence.plain_mass(kv_head, 0, sequence.n_fed(), 0, sequence.group_size());
      const auto of_head =
          std::span(mass).subspan(static_cast<size_t>(kv_head) * expected.size(), expected.size());
      const double off = worst_difference(of_head, kernels::kMassScale, expected);
      EXPECT_LE(off, 1e-5) << name_of(c);
      worst = std::max(worst, off);
    }
  }
  std::printf("worst relative error of column mass %.2g\n", worst);
}

TEST_F(Statistics, ColumnMassIsTheSameHoweverAPromptIsCut) {
  for (const Case& c : kCases) {
    if (c.swa_window > 0) {
      continue;
    }
    std::vector<int64_t> expected;
    for (const int n_at_once : {1300, 512, 97, 1299}) {
      Sequence sequence(c, {.mass = true});
      sequence.feed_in(1300, n_at_once);
      if (expected.empty()) {
        expected = sequence.mass();
      }
      EXPECT_EQ(sequence.mass(), expected) << name_of(c) << " " << n_at_once;
    }
  }
}

TEST_F(Statistics, ColumnMassStaysWithItsRows) {
  const Case c{64, 14, 2, cache::RowType::kF16};
  Sequence sequence(c, {.mass = true});
  sequence.feed_in(1500, 1500);
  const std::vector<int64_t> before = sequence.mass();
  const int n_before = sequence.cache().rows(0, 0).n;
  const std::vector<int32_t> positions = sequence.cache().positions(0, 0);
  sequence.cut(3, /*hides=*/false);
  const std::vector<int64_t> after = sequence.mass();
  for (int slot = 0; slot < sequence.cache().rows(0, 0).n; ++slot) {
    const auto at = std::ranges::find(positions, sequence.cache().rows(0, 0).positions[slot]) -
                    positions.begin();
    ASSERT_LT(at, n_before);
    EXPECT_EQ(after[static_cast<size_t>(slot)], before[static_cast<size_t>(at)]);
  }
}

// A generated token leaves half of what was there, and adds 1 for each query head.
TEST_F(Statistics, ColumnMassDecaysWithEachGeneratedToken) {
  for (const Case& c :
       {Case{128, 12, 2, cache::RowType::kF16}, Case{64, 24, 2, cache::RowType::kBf16}}) {
    Sequence sequence(c, {.mass = true, .decay = 0.5F});
    sequence.feed(300, true);
    for (int i = 0; i < 3; ++i) {
      sequence.feed(1, false);
    }
    const std::vector<int64_t> mass = sequence.mass();
    for (size_t kv_head = 0; kv_head < 2; ++kv_head) {
      double sum = 0;
      for (size_t row = 0; row < 303; ++row) {
        sum += static_cast<double>(mass[kv_head * 303 + row]) / kernels::kMassScale;
      }
      EXPECT_NEAR(sum, (300.0 / 8 + 1.75) * sequence.group_size(), 1e-3) << name_of(c);
    }
  }
}

TEST_F(Statistics, WindowMassAgreesWithDoubleLoops) {
  double worst = 0;
  for (const Case& c : kCases) {
    if (c.swa_window > 0) {
      continue;
    }
    for (const bool is_cut : {false, true}) {
      Sequence sequence(c, {.n_queries = 40});
      sequence.feed_in(2200, 1500);
      if (is_cut) {
        sequence.cut(9, /*hides=*/false);
      }
      sequence.feed(15, true);
      sequence.feed(1, false);
      for (const int n_queries : {1, 33, 40}) {
        const std::vector<int64_t> mass = sequence.window_mass(n_queries);
        const size_t stride = mass.size() / static_cast<size_t>(c.n_heads);
        for (int head = 0; head < c.n_heads; ++head) {
          const std::vector<double> expected =
              sequence.plain_mass(head / sequence.group_size(), sequence.n_fed() - n_queries,
                                  sequence.n_fed(), head % sequence.group_size(), 1);
          const double off =
              worst_difference(std::span(mass).subspan(static_cast<size_t>(head) * stride),
                               kernels::kWindowMassScale, expected);
          EXPECT_LE(off, 1e-5) << name_of(c) << " " << n_queries;
          worst = std::max(worst, off);
        }
      }
    }
  }
  std::printf("worst relative error of window mass %.2g\n", worst);
}

TEST_F(Statistics, WindowMassIsTheSameWhetherRowsAreEvictedOrHidden) {
  for (const Case& c : kCases) {
    if (c.swa_window > 0) {
      continue;
    }
    std::array<std::vector<int64_t>, 2> mass;
    for (const bool hides : {false, true}) {
      Sequence sequence(c, {.n_queries = 16});
      sequence.feed_in(1800, 1500);
      sequence.cut(4, hides);
      sequence.feed(20, true);
      const std::vector<int64_t> all = sequence.window_mass(16);
      const size_t stride = all.size() / static_cast<size_t>(c.n_heads);
      for (int head = 0; head < c.n_heads; ++head) {
        const cache::HeadRows rows = sequence.cache().rows(0, head / sequence.group_size());
        for (int slot = 0; slot < rows.n; ++slot) {
          if (rows.hidden == nullptr || rows.hidden[slot] == cache::kVisible) {
            mass[hides ? 1 : 0].push_back(
                all[static_cast<size_t>(head) * stride + static_cast<size_t>(slot)]);
          }
        }
      }
    }
    EXPECT_EQ(mass[0], mass[1]) << name_of(c);
  }
}

// Cuts each head to n_keep rows by what queries attended to; while that is under way, other work is started.
void cut_by(Sequence& sequence, const Case& c, const kernels::RowFormula& formula, int n_keep) {
  std::vector<kernels::DeviceCut> heads;
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    heads.push_back({.layer = 0,
                     .kv_head = kv_head,
                     .n = sequence.cache().rows(0, kv_head).n,
                     .n_keep = n_keep,
                     .n_first = 4,
                     .n_last = 8});
  }
  sequence.rows().start_cut(formula, heads, sequence.n_fed(), sequence.n_fed());
  const kernels::CutSlots slots = sequence.rows().finish_cut();
  EXPECT_GT(slots.ms, 0.0);
  for (size_t i = 0; i < heads.size(); ++i) {
    const int n_told = slots.are_lost ? heads[i].n - n_keep : n_keep;
    sequence.cache().follow(0, heads[i].kv_head,
                            {slots.slots + i * slots.stride, static_cast<size_t>(n_told)},
                            slots.are_lost);
  }
}

// Of rows [4, n - 8) of a head those with the most mass, of equal ones the first, beside the others.
std::vector<int> best_slots(std::span<const int64_t> mass, int n_keep) {
  const int n = static_cast<int>(mass.size());
  std::vector<int> slots(mass.size());
  std::iota(slots.begin(), slots.end(), 0);
  const auto is_protected = [n](int slot) { return slot < 4 || slot >= n - 8; };
  std::ranges::stable_sort(slots, [&](int a, int b) {
    if (is_protected(a) != is_protected(b)) {
      return is_protected(a);
    }
    // As floats, which is what a method scores.
    const auto worth = [&](int slot) {
      return static_cast<float>(static_cast<double>(mass[static_cast<size_t>(slot)]));
    };
    return !is_protected(a) && worth(a) > worth(b);
  });
  slots.resize(static_cast<size_t>(n_keep));
  std::ranges::sort(slots);
  return slots;
}

void expect_cut_by_mass(const Case& c, int n_prompt, int n_keep) {
  Sequence sequence(c, {.mass = true, .n_queries = 16});
  sequence.feed(n_prompt, true);
  sequence.feed(1, false);
  const std::vector<int64_t> mass = sequence.mass();
  std::vector<Sequence::Copy> before;
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    before.push_back(sequence.copy(kv_head));
  }
  cut_by(sequence, c, {.of = kernels::RowFormula::Of::kColumnMass}, n_keep);
  const auto n = static_cast<size_t>(n_prompt + 1);
  const std::vector<int64_t> mass_after = sequence.mass();
  for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
    const auto of_head = std::span(mass).subspan(static_cast<size_t>(kv_head) * n, n);
    const std::vector<int> expected = best_slots(of_head, n_keep);
    const Sequence::Copy after = sequence.copy(kv_head);
    ASSERT_EQ(after.view.n, n_keep);
    const size_t row_bytes = after.keys.size() / static_cast<size_t>(n_keep);
    for (size_t i = 0; i < expected.size(); ++i) {
      const auto slot = static_cast<size_t>(expected[i]);
      EXPECT_EQ(after.view.positions[i], expected[i]);
      EXPECT_EQ(mass_after[static_cast<size_t>(kv_head) * expected.size() + i], of_head[slot]);
      const Sequence::Copy& source = before[static_cast<size_t>(kv_head)];
      EXPECT_EQ(std::memcmp(after.keys.data() + i * row_bytes,
                            source.keys.data() + slot * row_bytes, row_bytes),
                0);
      EXPECT_EQ(std::memcmp(after.values.data() + i * row_bytes,
                            source.values.data() + slot * row_bytes, row_bytes),
                0);
    }
  }
}

TEST_F(Statistics, CutsKeepTheRowsWithTheMostMass) {
  for (const Case& c : kCases) {
    if (c.swa_window == 0) {
      expect_cut_by_mass(c, 1500, 1400);  // few are lost
      expect_cut_by_mass(c, 1500, 100);   // few are kept
    }
  }
}

// Few rows, every kernel: for compute-sanitizer, which is slow.
TEST_F(Statistics, SanitizedOnFewRows) {
  for (const Case& c : kCases) {
    if (c.swa_window > 0) {
      continue;
    }
    expect_cut_by_mass(c, 150, 40);
    Sequence sequence(c, {.mass = true, .n_queries = 20});
    sequence.feed(150, true);
    sequence.cut(7, /*hides=*/true);
    sequence.feed(33, true);
    sequence.feed(1, false);
    for (const int n_queries : {1, 20}) {
      const std::vector<int64_t> mass = sequence.window_mass(n_queries);
      const size_t stride = mass.size() / static_cast<size_t>(c.n_heads);
      const std::vector<double> expected =
          sequence.plain_mass(0, sequence.n_fed() - n_queries, sequence.n_fed(), 0, 1);
      EXPECT_LE(
          worst_difference(std::span(mass).first(stride), kernels::kWindowMassScale, expected),
          1e-5)
          << name_of(c);
    }
    Sequence unmarked(c, {.n_queries = 20});
    unmarked.feed(150, true);
    cut_by(unmarked, c,
           {.of = kernels::RowFormula::Of::kLastQueries, .n_queries = 20, .pool_width = 5}, 60);
    EXPECT_EQ(unmarked.cache().rows(0, 0).n, 60);
  }
}

}  // namespace
}  // namespace winnow
