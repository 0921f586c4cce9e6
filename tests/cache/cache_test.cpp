// The cache: rows kept in order, memory given back, and accounting.

#include "cache/cache.h"

#include <gtest/gtest.h>

#include "oracle/attention_oracle.h"
#include "support/error_of.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using cache::Cache;
using cache::CacheShape;
using cache::RowType;

CacheShape small_shape(RowType type = RowType::kF32) {
  return {.n_layers = 2,
          .n_kv_heads = 2,
          .head_dim = 4,
          .key_type = type,
          .value_type = type,
          .max_rows = 5000,
          .stores_scores = true};
}

// Row i of token t is t + 0.1 i, in both heads.
void append_numbered(Cache& cache, int layer, int first_pos, int n) {
  std::vector<float> rows;
  for (int i = 0; i < n * cache.shape().n_kv_heads * cache.shape().head_dim; ++i) {
    rows.push_back(
        static_cast<float>(first_pos + i / (cache.shape().n_kv_heads * cache.shape().head_dim)));
  }
  test::append_tokens(cache, layer, first_pos, rows, rows);
}

TEST(Cache, GivesBackWhatAWindowHasLeftBehind) {
  CacheShape shape = small_shape();
  shape.swa_windows = {100, 0};
  EXPECT_EQ(shape.n_windowed_layers(), 1);
  EXPECT_EQ(CacheShape::window_slack(100), 25);
  EXPECT_EQ(shape.full_bytes(70), 4 * 70 * shape.row_bytes());
  EXPECT_EQ(shape.full_bytes(1000), 2 * (100 + 1000) * shape.row_bytes());
  Cache cache(shape);
  for (const int layer : {0, 1}) {
    append_numbered(cache, layer, 0, 124);
    cache.drop_unseen(layer, 123);
    EXPECT_EQ(cache.n_cached(layer, 1), 124);  // 24 rows are not worth moving the others
    append_numbered(cache, layer, 124, 1);
    cache.drop_unseen(layer, 124);
  }
  EXPECT_EQ(cache.n_cached(0, 0), 100);
  EXPECT_EQ(cache.n_cached(0, 1), 100);
  EXPECT_EQ(cache.rows(0, 1).positions[0], 25);
  EXPECT_EQ(oracle::row_element(cache.rows(0, 1).keys, RowType::kF32, 0), 25.0);
  EXPECT_EQ(cache.n_cached(1, 1), 125);
  EXPECT_EQ(cache.rows_evicted(), 0);
  EXPECT_EQ(cache.longest(), 125);
  append_numbered(cache, 0, 125, 100);
  EXPECT_EQ(cache.longest(), 125);  // of the layers without a window
}

// Slots that attention sees.
std::vector<int> visible_slots(const cache::HeadRows& rows) {
  std::vector<int> slots;
  for (int slot = 0; slot < rows.n; ++slot) {
    if (rows.hidden == nullptr || rows.hidden[slot] == 0) {
      slots.push_back(slot);
    }
  }
  EXPECT_EQ(rows.n_visible(), static_cast<int>(slots.size()));
  return slots;
}

TEST(Cache, RandomEvictionsKeepTheRightRowsInOrder) {
  std::mt19937 random(1);
  for (const RowType type : {RowType::kF32, RowType::kF16, RowType::kBf16}) {
    for (int repeat = 0; repeat < 50; ++repeat) {
      Cache cache(small_shape(type));
      std::vector<int> expected;  // positions in layer 1, head 0
      int next_pos = 0;
      for (int step = 0; step < 8; ++step) {
        const int n = std::uniform_int_distribution<int>(1, 200)(random);
        append_numbered(cache, 1, next_pos, n);
        for (int i = 0; i < n; ++i) {
          expected.push_back(next_pos + i);
        }
        next_pos += n;
        const int n_held = static_cast<int>(expected.size());
        const int n_fewest = step % 2 == 0 ? 0 : std::max(n_held - 20, 0);  // many go, or few
        const int n_keep = std::uniform_int_distribution<int>(n_fewest, n_held)(random);
        const std::vector<int> held = visible_slots(cache.rows(1, 0));
        std::vector<int> slots;
        std::vector<int> kept;
        for (const int index : test::random_slots(random, n_held, n_keep)) {
          slots.push_back(held[static_cast<size_t>(index)]);
          kept.push_back(expected[static_cast<size_t>(index)]);
        }
        cache.keep(1, 0, slots);
        expected = kept;
        ASSERT_EQ(cache.n_cached(1, 0), n_keep);
        ASSERT_LE(cache.rows(1, 0).n, n_keep + Cache::kMaxEvictedSlots);
      }
      const cache::HeadRows rows = cache.rows(1, 0);
      const std::vector<int> held = visible_slots(rows);
      ASSERT_EQ(held.size(), expected.size());
      for (size_t i = 0; i < held.size(); ++i) {
        const auto at = static_cast<size_t>(held[i]);
        ASSERT_EQ(rows.positions[at], expected[i]);
        // bf16 holds whole numbers up to 256 exactly, f16 up to 2048.
        const double tolerance = type == RowType::kBf16 ? expected[i] / 256.0 : 0;
        ASSERT_NEAR(oracle::row_element(rows.keys, type, at * 4), expected[i], tolerance);
        ASSERT_NEAR(oracle::row_element(rows.values, type, at * 4 + 3), expected[i], tolerance);
        ASSERT_NEAR(static_cast<double>(rows.scores[at]), 4.0 * expected[i] * expected[i],
                    12.0 * tolerance * expected[i]);
      }
      EXPECT_EQ(cache.n_cached(1, 1), next_pos);  // the other head lost nothing
      EXPECT_EQ(cache.n_cached(0, 0), 0);
      EXPECT_EQ(cache.rows_evicted(), next_pos - cache.n_cached(1, 0));
    }
  }
}

TEST(Cache, BytesAreThoseOfTheRowsHeld) {
  Cache cache(small_shape());
  const size_t row = 4 * 4 + 4 * 4 + 4 + 4;  // key, value, position, score
  EXPECT_EQ(cache.shape().row_bytes(), row);
  EXPECT_EQ(cache.now_bytes(), 0U);
  append_numbered(cache, 0, 0, 1000);
  cache.record_peak();
  EXPECT_EQ(cache.now_bytes(), 2 * 1000 * row);
  EXPECT_GE(cache.committed_bytes(), cache.now_bytes());
  const std::vector<int> slots{0, 1, 999};
  cache.keep(0, 0, slots);
  cache.keep(0, 1, slots);
  cache.record_peak();
  EXPECT_EQ(cache.now_bytes(), 2 * 3 * row);
  EXPECT_EQ(cache.peak_bytes(), 2 * 1000 * row);
  EXPECT_EQ(cache.committed_bytes(), 2 * 4 * cache::page_bytes());
}

TEST(Cache, HiddenRowsStayButAreMarked) {
  Cache cache(small_shape());
  append_numbered(cache, 0, 0, 4);
  EXPECT_EQ(cache.rows(0, 0).hidden, nullptr);
  const std::vector<int> slots{0, 2};
  cache.hide_others(0, 0, slots);
  append_numbered(cache, 0, 4, 1);  // new rows are visible
  EXPECT_EQ(visible_slots(cache.rows(0, 0)), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(cache.n_cached(0, 0), 5);
  append_numbered(cache, 0, 5, 60);
  const std::vector<int> rest{1, 2, 4};
  cache.keep(0, 0, rest);
  EXPECT_EQ(cache.rows(0, 0).n, 3);
  EXPECT_EQ(visible_slots(cache.rows(0, 0)), (std::vector<int>{1, 2}));
  cache.hide_others(0, 0, std::vector<int>{0, 1, 2});
  EXPECT_EQ(cache.rows(0, 0).hidden, nullptr);
}

// What decoding does: a row comes, a row goes.
TEST(Cache, RowsEvictedOneByOneGoTogether) {
  Cache cache(small_shape());
  append_numbered(cache, 0, 0, 100);
  const size_t bytes = cache.now_bytes();
  for (int step = 1; step <= 3 * Cache::kMaxEvictedSlots; ++step) {
    append_numbered(cache, 0, 99 + step, 1);
    for (const int kv_head : {0, 1}) {
      std::vector<int> slots = visible_slots(cache.rows(0, kv_head));
      ASSERT_EQ(slots.size(), 101U);
      slots.erase(slots.begin() + 50);
      cache.keep(0, kv_head, slots);
    }
    EXPECT_EQ(cache.n_cached(0, 1), 100);
    EXPECT_EQ(cache.now_bytes(), bytes);
    EXPECT_EQ(cache.rows_evicted(), 2 * step);
    EXPECT_EQ(cache.rows(0, 1).n, 100 + step % (Cache::kMaxEvictedSlots + 1));
    // A page's worth of rows is 256.
    EXPECT_EQ(cache.committed_bytes(), 2 * 4 * cache::page_bytes());
  }
  const std::vector<int> slots = visible_slots(cache.rows(0, 0));
  std::vector<int32_t> positions;
  for (const int slot : slots) {
    positions.push_back(cache.rows(0, 0).positions[slot]);
  }
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(positions[static_cast<size_t>(i)], i < 50 ? i : i + 3 * Cache::kMaxEvictedSlots);
  }
}

TEST(CacheDeathTest, EvictedRowsDoNotComeBack) {
  Cache cache(small_shape());
  append_numbered(cache, 0, 0, 4);
  cache.keep(0, 0, std::vector<int>{0, 2, 3});
  EXPECT_DEATH(cache.keep(0, 0, std::vector<int>{0, 1}), "kEvicted");
  EXPECT_DEATH(cache.hide_others(0, 0, std::vector<int>{1}), "kEvicted");
}

// Eviction may leave the value that was not finite: attention must go on guarding against it.
TEST(Cache, RemembersThatValuesWereNotFinite) {
  Cache cache(small_shape());
  append_numbered(cache, 0, 0, 2);
  EXPECT_FALSE(cache.rows(0, 0).has_nonfinite_values);
  const std::vector<float> rows(8, std::numeric_limits<float>::infinity());
  test::append_tokens(cache, 0, 2, rows, rows);
  const std::vector<int> last{2};
  cache.keep(0, 0, last);
  EXPECT_TRUE(cache.rows(0, 0).has_nonfinite_values);
  EXPECT_EQ(cache.append_counts().nonfinite_values, 8);
}

TEST(Cache, NamesTheTypesItKnows) {
  EXPECT_EQ(cache::parse_row_type("bf16"), RowType::kBf16);
  const std::string message =
      test::error_of(ErrorCode::kInvalidArgument, [] { cache::parse_row_type("q8_0"); });
  EXPECT_NE(message.find("q8_0"), std::string::npos);
  EXPECT_NE(message.find("f32, f16, bf16"), std::string::npos);
}

TEST(CacheDeathTest, RefusesMoreRowsThanItHasRoomFor) {
  Cache cache(small_shape());
  EXPECT_DEATH(cache.reserve(0, 0, 5001), "max_rows");
}

}  // namespace
}  // namespace winnow
