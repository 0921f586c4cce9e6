// A cache in a file is the cache: for random shapes, types and evictions.

#include "cache/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/files.h"
#include "support/error_of.h"
#include "support/random_rows.h"
#include "support/sealed.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using cache::Cache;
using cache::CacheShape;
using cache::RowType;
using cache::SavedCache;
using test::error_of;

constexpr SectionFormat kFormat{
    .magic = {'t', 'e', 's', 't', 'f', 'i', 'l', 'e'}, .version = 1, .name = "test file"};

int random_int(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

CacheShape random_shape(std::mt19937& random) {
  constexpr RowType kTypes[] = {RowType::kF32, RowType::kF16, RowType::kBf16};
  CacheShape shape{.n_layers = random_int(random, 1, 4),
                   .n_kv_heads = random_int(random, 1, 3),
                   .head_dim = 4 * random_int(random, 1, 8),
                   .key_type = kTypes[random_int(random, 0, 2)],
                   .value_type = kTypes[random_int(random, 0, 2)],
                   .max_rows = 600,
                   .stores_scores = random_int(random, 0, 1) == 1};
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    shape.swa_windows.push_back(random_int(random, 0, 1) * 40);
  }
  return shape;
}

void append(std::mt19937& random, Cache& cache, int first_pos, int n_tokens) {
  const CacheShape& shape = cache.shape();
  const auto n = static_cast<size_t>(n_tokens * shape.n_kv_heads * shape.head_dim);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    test::append_tokens(cache, layer, first_pos, test::random_floats(random, n),
                        test::random_floats(random, n, 1e5F));  // some beyond f16
  }
}

// Evicts from every head some rows, few or many: heads differ, and some have evicted rows in their slots.
void evict_some(std::mt19937& random, Cache& cache) {
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
      if (cache.shape().swa_window(layer) > 0) {
        continue;
      }
      std::vector<int> held;
      const cache::HeadRows rows = cache.rows(layer, kv_head);
      for (int slot = 0; slot < rows.n; ++slot) {
        if (!rows.is_evicted(slot)) {
          held.push_back(slot);
        }
      }
      const int n = static_cast<int>(held.size());
      const int n_kept = std::max(0, n - random_int(random, 0, random_int(random, 0, 1) * n + 20));
      std::vector<int> kept;
      for (const int i : test::random_slots(random, n, n_kept)) {
        kept.push_back(held[static_cast<size_t>(i)]);
      }
      cache.keep(layer, kv_head, kept);
    }
    cache.drop_unseen(layer, 150);
  }
}

std::string saved(const Cache& cache) {
  const std::string path = test::temporary_path("cache");
  SectionWriter file;
  cache::put_cache(cache, file);
  file.write(path, kFormat);
  return path;
}

Cache loaded(const std::string& path, int n_positions, int max_rows) {
  SectionFile file(path, kFormat);
  const SavedCache rows(file, n_positions);
  file.refuse_others();
  CacheShape shape = rows.shape();
  shape.max_rows = std::max(max_rows, shape.max_rows);
  Cache cache(shape);
  rows.restore(cache);
  return cache;
}

void expect_same_rows(const Cache& a, const Cache& b) {
  const CacheShape& shape = a.shape();
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    EXPECT_EQ(a.shape().swa_window(layer), b.shape().swa_window(layer));
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      ASSERT_EQ(a.positions(layer, kv_head), b.positions(layer, kv_head));
      const cache::HeadRows rows = a.rows(layer, kv_head);
      const cache::HeadRows copy = b.rows(layer, kv_head);
      EXPECT_EQ(copy.n_hidden, 0);
      EXPECT_EQ(rows.has_nonfinite_values, copy.has_nonfinite_values);
      size_t to = 0;
      for (int slot = 0; slot < rows.n; ++slot) {
        if (rows.is_evicted(slot)) {
          continue;
        }
        const auto from = static_cast<size_t>(slot);
        EXPECT_EQ(0, std::memcmp(rows.keys + from * shape.key_bytes(),
                                 copy.keys + to * shape.key_bytes(), shape.key_bytes()));
        EXPECT_EQ(0, std::memcmp(rows.values + from * shape.value_bytes(),
                                 copy.values + to * shape.value_bytes(), shape.value_bytes()));
        if (shape.stores_scores) {
          EXPECT_EQ(rows.scores[from], copy.scores[to]);
        }
        ++to;
      }
    }
  }
}

TEST(Snapshot, IsTheCacheForRandomShapesAndEvictions) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    Cache cache(random_shape(random));
    append(random, cache, 0, 100);
    evict_some(random, cache);
    append(random, cache, 100, 50);
    evict_some(random, cache);
    const std::string path = saved(cache);
    Cache copy = loaded(path, 150, 400);
    expect_same_rows(cache, copy);
    EXPECT_EQ(copy.now_bytes(), cache.now_bytes());
    EXPECT_EQ(copy.peak_bytes(), cache.now_bytes());
    EXPECT_EQ(copy.rows_evicted(), cache.rows_evicted());
    EXPECT_EQ(copy.append_counts().saturated, cache.append_counts().saturated);
    for (int n_positions = 0; n_positions <= 150; ++n_positions) {
      EXPECT_EQ(copy.missing_row(n_positions).has_value(),
                cache.missing_row(n_positions).has_value());
    }
    const std::string bytes = read_text_file(path);
    EXPECT_EQ(read_text_file(saved(copy)), bytes);
    append(random, copy, 150, 30);  // goes on
  }
}

TEST(Snapshot, LeavesOutRowsThatAreGone) {
  std::mt19937 random(1);
  Cache cache({.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .max_rows = 100});
  append(random, cache, 0, 50);
  const auto n_before = read_text_file(saved(cache)).size();
  std::vector<int> kept;
  for (int slot = 0; slot < 50; slot += slot == 10 ? 20 : 1) {
    kept.push_back(slot);
  }
  cache.keep(0, 0, kept);
  EXPECT_EQ(cache.rows(0, 0).n, 50);  // in their slots
  EXPECT_EQ(read_text_file(saved(cache)).size(), n_before - 19 * cache.shape().row_bytes());
}

TEST(Snapshot, RefusesHiddenRows) {
  std::mt19937 random(1);
  Cache cache({.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .max_rows = 100});
  append(random, cache, 0, 5);
  cache.hide_others(0, 0, std::vector<int>{0, 2});
  error_of(ErrorCode::kInvalidArgument, [&] { saved(cache); });
}

// A file whose checksum is right may still say anything.
TEST(Snapshot, RefusesWhatContradictsItself) {
  std::mt19937 random(1);
  Cache cache({.n_layers = 1,
               .n_kv_heads = 1,
               .head_dim = 8,
               .key_type = RowType::kF32,
               .value_type = RowType::kF32,
               .max_rows = 100});
  append(random, cache, 0, 5);
  const std::string sound = read_text_file(saved(cache));
  const auto refusal = [&](const char* section, size_t offset, int32_t value) {
    const size_t start = sound.find(section) + std::strlen(section) + sizeof(uint64_t);
    std::string bytes = sound;
    std::memcpy(bytes.data() + start + offset, &value, sizeof(value));
    const std::string path = test::temporary_path("contradiction");
    write_file_atomically(path, test::sealed(bytes));
    return error_of(ErrorCode::kBadData, [&] { loaded(path, 5, 100); });
  };
  const size_t head = 3 * 4 + 2 * 7 + 4;  // after the shape, two types and a window
  for (const auto& [offset, value, part] :
       {std::tuple<size_t, int32_t, const char*>{0, 0, "layers is 0"},
        {0, 1 << 20, "layers is"},
        {4, 2, ""},
        {8, -1, "length of a key"},
        {8, 16, "rows of"},
        {16, 0x373766, "cache type"},
        {head - 4, -1, "window"},
        {head, 6, "rows is 6"},
        {head, 4, "4 rows of"},
        {head, -1, "rows is -1"},
        {head + 4, 2, "has lost rows and has not"},
        {head + 8, 3, "has lost rows and has not"},
        {head + 16, -1, "negative"}}) {
    const std::string message = refusal("cache", offset, value);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  for (const int32_t position : {-1, 0, 2, 5}) {  // at the place of 1
    const std::string message = refusal("positions", 4, position);
    EXPECT_NE(message.find("'positions'"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace winnow
