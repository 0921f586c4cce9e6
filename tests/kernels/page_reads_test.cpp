// Which pages a generated token reads, against loops in double, and that it attends to these and no others.

#include "kernels/page_reads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/scratch.h"
#include "kernels/attend.h"
#include "kernels/blocks.h"
#include "kernels/row_kernels.h"
#include "support/attend.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::RowType;
using kernels::PageReads;
using kernels::RowRun;

struct Case {
  int head_dim;
  int n_heads;
  int n_kv_heads;
  int n_rows;
  RowType key_type;
  int page_rows;
  int n_pages;
  int n_channels = 0;
};

Case random_case(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  constexpr RowType kTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16};
  const int n_kv_heads = draw(1, 3);
  const int head_dim = 16 * draw(1, 8);
  return {.head_dim = head_dim,
          .n_heads = n_kv_heads * draw(1, 4),
          .n_kv_heads = n_kv_heads,
          .n_rows = draw(1, 700),
          .key_type = kTypes[draw(0, 2)],
          .page_rows = draw(1, 24),
          .n_pages = draw(1, 12),
          .n_channels = draw(0, 1) * draw(1, head_dim)};
}

cache::Cache random_cache(std::mt19937& random, const Case& c) {
  cache::Cache cache({.n_layers = 1,
                      .n_kv_heads = c.n_kv_heads,
                      .head_dim = c.head_dim,
                      .key_type = c.key_type,
                      .value_type = RowType::kF16,
                      .max_rows = c.n_rows + 1,
                      .stores_scores = false});
  const size_t n = static_cast<size_t>(c.n_rows) * static_cast<size_t>(c.n_kv_heads * c.head_dim);
  test::append_tokens(cache, 0, 0, test::random_floats(random, n), test::random_floats(random, n));
  return cache;
}

PageReads reads_of(const Case& c, int n_whole_layers = 0) {
  return PageReads({.n_layers = 1,
                    .n_kv_heads = c.n_kv_heads,
                    .head_dim = c.head_dim,
                    .key_type = c.key_type,
                    .rule = {.n_pages = c.n_pages,
                             .page_rows = c.page_rows,
                             .n_whole_layers = n_whole_layers,
                             .n_channels = c.n_channels},
                    .is_watched = {true}});
}

std::vector<int> visible_slots(const cache::HeadRows& rows) {
  std::vector<int> slots(static_cast<size_t>(rows.n));
  const auto visible = cache::visible_slots(rows, slots);
  return {visible.begin(), visible.end()};
}

// The visible slots in the runs; none: all.
std::vector<int> slots_of(std::span<const RowRun> runs, const std::vector<int>& visible) {
  std::vector<int> slots;
  for (const int slot : visible) {
    if (runs.empty() || std::ranges::any_of(runs, [&](const RowRun& run) {
          return run.first <= slot && slot < run.last;
        })) {
      slots.push_back(slot);
    }
  }
  return slots;
}

std::vector<float> key_at(const cache::HeadRows& rows, int slot) {
  Scratch scratch;
  std::vector<float> key(static_cast<size_t>(rows.head_dim));
  constexpr float kOnce = 1;
  kernels::weighted_sum(kernels::keys_of(rows), {&slot, 1}, {&kOnce, 1}, key, scratch);
  return key;
}

// Whether a channel is among the strongest of the queries: fewer than so many are stronger, or as strong and before it.
bool is_strong(std::span<const float> queries, size_t dim, size_t channel, int n_channels) {
  const auto strength = [&](size_t c) {
    float up = 0;
    float down = 0;
    for (size_t i = c; i < queries.size(); i += dim) {
      (queries[i] < 0 ? down : up) += queries[i];
    }
    return up - down;
  };
  int n_better = 0;
  for (size_t c = 0; c < dim; ++c) {
    n_better += static_cast<int>(strength(c) > strength(channel) ||
                                 (strength(c) == strength(channel) && c < channel));
  }
  return n_channels == 0 || n_better < n_channels;
}

// The bound of a page, over all queries, as the formula has it.
double reach_of(const cache::HeadRows& rows, std::span<const int> slots,
                std::span<const float> queries, const std::vector<bool>& counts) {
  const auto dim = static_cast<size_t>(rows.head_dim);
  std::vector<double> low(dim, std::numeric_limits<double>::infinity());
  std::vector<double> high(dim, -std::numeric_limits<double>::infinity());
  for (const int slot : slots) {
    const std::vector<float> key = key_at(rows, slot);
    for (size_t c = 0; c < dim; ++c) {
      low[c] = std::min(low[c], static_cast<double>(key[c]));
      high[c] = std::max(high[c], static_cast<double>(key[c]));
    }
  }
  double reach = 0;
  for (size_t i = 0; i < queries.size(); ++i) {
    if (!counts[i % dim]) {
      continue;
    }
    const auto q = static_cast<double>(queries[i]);
    reach += std::max(q * low[i % dim], q * high[i % dim]);
  }
  return reach;
}

std::span<const float> queries_of(const Case& c, const std::vector<float>& queries, int kv_head) {
  const auto n = static_cast<size_t>(c.n_heads / c.n_kv_heads * c.head_dim);
  return std::span(queries).subspan(static_cast<size_t>(kv_head) * n, n);
}

TEST(PageReads, TheNewestPageAndThoseThatMayReachFarthestAreRead) {
  std::mt19937 random(1);
  Scratch scratch;
  int n_chosen_cases = 0;
  for (int repeat = 0; repeat < 150; ++repeat) {
    const Case c = random_case(random);
    cache::Cache cache = random_cache(random, c);
    PageReads reads = reads_of(c);
    for (int cut = 0; cut < 3; ++cut) {  // hidden rows, then rows that are gone
      const auto queries = test::random_floats(random, static_cast<size_t>(c.n_heads * c.head_dim));
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        const cache::HeadRows rows = cache.rows(0, kv_head);
        const auto of_head = queries_of(c, queries, kv_head);
        const auto visible = visible_slots(rows);
        std::vector<bool> counts;
        for (size_t channel = 0; channel < static_cast<size_t>(c.head_dim); ++channel) {
          counts.push_back(
              is_strong(of_head, static_cast<size_t>(c.head_dim), channel, c.n_channels));
        }
        const auto read = slots_of(reads.choose(0, kv_head, rows, of_head, scratch), visible);
        const auto page_rows = static_cast<size_t>(c.page_rows);
        const size_t n_all = (visible.size() + page_rows - 1) / page_rows;
        const size_t n_read = std::min(n_all, static_cast<size_t>(c.n_pages));
        std::vector<size_t> pages;
        for (const int slot : read) {
          const auto at =
              static_cast<size_t>(std::ranges::lower_bound(visible, slot) - visible.begin());
          if (pages.empty() || pages.back() != at / page_rows) {
            pages.push_back(at / page_rows);
          }
        }
        ASSERT_EQ(pages.size(), n_read);
        ASSERT_EQ(pages.back(), n_all - 1);
        double least_read = std::numeric_limits<double>::infinity();
        double most_left = -std::numeric_limits<double>::infinity();
        for (size_t page = 0; page + 1 < n_all; ++page) {
          const double reach = reach_of(
              rows, std::span(visible).subspan(page * page_rows, page_rows), of_head, counts);
          const bool is_read = std::ranges::binary_search(pages, page);
          (is_read ? least_read : most_left) =
              is_read ? std::min(least_read, reach) : std::max(most_left, reach);
        }
        n_chosen_cases += n_read > 1 && n_read < n_all ? 1 : 0;
        EXPECT_GE(least_read, most_left - 1e-4 * std::abs(most_left));
        const int n_keep =
            std::uniform_int_distribution<int>(1, static_cast<int>(visible.size()))(random);
        std::vector<int> kept;
        std::ranges::sample(visible, std::back_inserter(kept), n_keep, random);
        if (cut == 0) {
          cache.hide_others(0, kv_head, kept);
        } else {
          cache.keep(0, kv_head, kept);
        }
      }
    }
  }
  EXPECT_GT(n_chosen_cases, 50);
}

// What is read is what would be there had the other rows been hidden, to the bit; also for column mass.
TEST(PageReads, RowsThatAreNotReadAreAsIfHidden) {
  std::mt19937 random(2);
  for (int repeat = 0; repeat < 60; ++repeat) {
    const Case c = random_case(random);
    cache::Cache cache = random_cache(random, c);
    const auto queries = test::random_floats(random, static_cast<size_t>(c.n_heads * c.head_dim));
    PageReads reads = reads_of(c);
    const kernels::AttendShape shape{
        .n_heads = c.n_heads, .n_kv_heads = c.n_kv_heads, .head_dim = c.head_dim, .scale = 0.125F};
    for (const int n_threads : {1, 3}) {
      kernels::StepContext step(shape, n_threads);
      const auto read = test::attend_as_node({.step = &step, .layer = 0},
                                             {.cache = &cache,
                                              .first_token = 0,
                                              .n_tokens = 1,
                                              .first_pos = c.n_rows,
                                              .first_rotation = c.n_rows,
                                              .is_prompt = false,
                                              .pages = &reads},
                                             queries, n_threads);
      Scratch scratch;
      PageReads other = reads_of(c);
      std::vector<std::vector<int>> slots;
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        const cache::HeadRows rows = cache.rows(0, kv_head);
        slots.push_back(
            slots_of(other.choose(0, kv_head, rows, queries_of(c, queries, kv_head), scratch),
                     visible_slots(rows)));
      }
      std::vector<float> expected;
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        cache::HeadRows rows = cache.rows(0, kv_head);
        std::vector<uint8_t> mask(static_cast<size_t>(rows.n), cache::kHidden);
        for (const int slot : slots[static_cast<size_t>(kv_head)]) {
          mask[static_cast<size_t>(slot)] = cache::kVisible;
        }
        rows.hidden = mask.data();
        const int group = c.n_heads / c.n_kv_heads;
        const int blocks = kernels::n_blocks(c.n_rows);
        std::vector<float> memory(
            kernels::decode_scratch_floats(group, c.head_dim, c.n_rows + 1, rows.n) + 16);
        std::vector<float> partials(static_cast<size_t>(blocks) *
                                    kernels::decode_partial_floats(group, c.head_dim));
        std::vector<float> out(static_cast<size_t>(group * c.head_dim));
        const auto of_head = queries_of(c, queries, kv_head);
        kernels::attend_decode_blocks(
            rows, {.q = of_head.data(), .gqa_group_size = group, .swa_window = 0, .pos = c.n_rows},
            0, blocks, shape.scale, align_to_line(memory.data()), partials.data());
        kernels::merge_decode_blocks(partials.data(), blocks, group, c.head_dim, out.data());
        expected.insert(expected.end(), out.begin(), out.end());
      }
      EXPECT_EQ(read, expected) << c.n_rows << " rows, pages of " << c.page_rows;
    }
  }
}

// A key that is no number reaches nowhere, and nothing breaks.
TEST(PageReads, AKeyThatIsNoNumberIsRankedLast) {
  const Case c{.head_dim = 16,
               .n_heads = 1,
               .n_kv_heads = 1,
               .n_rows = 64,
               .key_type = RowType::kF32,
               .page_rows = 8,
               .n_pages = 3};
  cache::Cache cache({.n_layers = 1,
                      .n_kv_heads = 1,
                      .head_dim = 16,
                      .key_type = RowType::kF32,
                      .value_type = RowType::kF32,
                      .max_rows = 64,
                      .stores_scores = false});
  std::vector<float> keys(64 * 16, 1.0F);
  std::fill_n(keys.begin() + 16 * 16, 8 * 16, std::numeric_limits<float>::quiet_NaN());  // page 2
  std::fill_n(keys.begin() + 40 * 16, 8 * 16, 2.0F);                                     // page 5
  test::append_tokens(cache, 0, 0, keys, keys);
  PageReads reads = reads_of(c);
  Scratch scratch;
  const std::vector<float> query(16, 1.0F);
  const auto runs = reads.choose(0, 0, cache.rows(0, 0), query, scratch);
  ASSERT_EQ(runs.size(), 3U);
  EXPECT_EQ(runs[0].first, 0);  // of equal ones the first
  EXPECT_EQ(runs[1].first, 40);
  EXPECT_EQ(runs[2].first, 56);
  EXPECT_EQ(reads.tally().n_read, 24);
  EXPECT_EQ(reads.tally().n_held, 64);
}

TEST(PageReads, WholeLayersAndFewRowsAreReadWhole) {
  std::mt19937 random(3);
  const Case c{.head_dim = 32,
               .n_heads = 2,
               .n_kv_heads = 1,
               .n_rows = 100,
               .key_type = RowType::kF16,
               .page_rows = 16,
               .n_pages = 2};
  const cache::Cache cache = random_cache(random, c);
  const auto queries = test::random_floats(random, 64);
  Scratch scratch;
  PageReads whole = reads_of(c, /*n_whole_layers=*/1);
  EXPECT_TRUE(whole.choose(0, 0, cache.rows(0, 0), queries, scratch).empty());
  EXPECT_EQ(whole.tally().share(), 1);
  EXPECT_EQ(whole.bytes(), 0U);
  Case few = c;
  few.n_pages = 7;
  PageReads all = reads_of(few);
  EXPECT_TRUE(all.choose(0, 0, cache.rows(0, 0), queries, scratch).empty());
  PageReads some = reads_of(c);
  EXPECT_FALSE(some.choose(0, 0, cache.rows(0, 0), queries, scratch).empty());
  // Six pages of 16 positions and two bounds of 32 f16 elements.
  EXPECT_EQ(some.bytes(), 6U * (16 * 4 + 2 * 32 * 2));
  const PageReads::Shape shape{.n_layers = 1,
                               .n_kv_heads = 1,
                               .head_dim = 32,
                               .key_type = RowType::kF16,
                               .rule = {.n_pages = 2, .page_rows = 16, .n_whole_layers = 0},
                               .is_watched = {true}};
  EXPECT_EQ(PageReads::bytes(shape, 100), some.bytes());
}

// The settings that the formulas of RocketKV give for keys of 128 elements: rows kept, rows' worth read, and what follows.
TEST(PageRule, IsSettledByTheRowsThatAreKept) {
  struct Golden {
    int n_kept, n_read, page_rows, n_channels, n_rows;
  };
  for (const Golden& golden : {Golden{2896, 512, 3, 68, 256}, Golden{5792, 1024, 3, 68, 512},
                               Golden{3019, 512, 3, 65, 256}, Golden{2628, 1024, 2, 100, 512}}) {
    const auto rule = kernels::PageRule{.n_read = golden.n_read}.settled(golden.n_kept, 128);
    EXPECT_EQ(rule.page_rows, golden.page_rows);
    EXPECT_EQ(rule.n_channels, golden.n_channels);
    EXPECT_EQ(rule.n_pages, (golden.n_rows + golden.page_rows - 1) / golden.page_rows);
    EXPECT_EQ(rule.n_read, 0);
  }
  EXPECT_FALSE(kernels::PageRule{.n_read = 512}.settled(512, 128).is_wanted());
  const kernels::PageRule given{.n_pages = 5, .page_rows = 7};
  EXPECT_EQ(given.settled(1000, 64), given);
}

}  // namespace
}  // namespace winnow
