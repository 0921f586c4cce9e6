#include "cache/snapshot.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <string>

#include "base/error.h"

namespace winnow::cache {
namespace {

constexpr const char* kCacheSection = "cache";
constexpr int kMost = 1 << 16;  // layers, KV heads, elements of a row

// What a row has, one section each; a column that the cache does not have is not written.
struct Column {
  const char* section;
  size_t (*row_bytes)(const CacheShape& shape);
  const void* (*of)(const HeadRows& rows);
  void* (*at)(const Cache::Target& target);
};
constexpr Column kColumns[] = {
    {"keys", [](const CacheShape& shape) { return shape.key_bytes(); },
     [](const HeadRows& rows) -> const void* { return rows.keys; },
     [](const Cache::Target& target) -> void* { return target.keys; }},
    {"values", [](const CacheShape& shape) { return shape.value_bytes(); },
     [](const HeadRows& rows) -> const void* { return rows.values; },
     [](const Cache::Target& target) -> void* { return target.values; }},
    {"positions", [](const CacheShape& /*shape*/) { return sizeof(int32_t); },
     [](const HeadRows& rows) -> const void* { return rows.positions; },
     [](const Cache::Target& target) -> void* { return target.positions; }},
    {"scores", [](const CacheShape& shape) { return shape.score_bytes(); },
     [](const HeadRows& rows) -> const void* { return rows.scores; },
     [](const Cache::Target& target) -> void* { return target.scores; }},
    {"mass", [](const CacheShape& shape) { return shape.mass_bytes(); },
     [](const HeadRows& rows) -> const void* { return rows.mass; },
     [](const Cache::Target& target) -> void* { return target.mass; }},
    {"rotations", [](const CacheShape& shape) { return shape.rotation_bytes(); },
     [](const HeadRows& rows) -> const void* { return rows.rotations; },
     [](const Cache::Target& target) -> void* { return target.rotations; }}};
constexpr size_t kPositions = 2;  // in kColumns
constexpr size_t kRotations = 5;

// Calls visit(first slot, number of slots) for each run of slots whose rows are held.
template <class Visit>
void for_each_run(const HeadRows& rows, const Visit& visit) {
  int first = 0;
  for (int slot = 0; slot <= rows.n; ++slot) {
    if (slot == rows.n || rows.is_evicted(slot)) {
      if (slot > first) {
        visit(static_cast<size_t>(first), static_cast<size_t>(slot - first));
      }
      first = slot + 1;
    }
  }
}

void check_visible(const Cache& cache, int layer, int kv_head) {
  const HeadRows rows = cache.rows(layer, kv_head);
  if (rows.n - rows.n_hidden != cache.n_cached(layer, kv_head)) {
    throw Error(ErrorCode::kInvalidArgument,
                "layer " + std::to_string(layer) + ", KV head " + std::to_string(kv_head) +
                    " has rows that are hidden from attention; such a cache cannot be saved");
  }
}

}  // namespace

void put_cache(const Cache& cache, SectionWriter& file) {
  const CacheShape& shape = cache.shape();
  file.begin(kCacheSection);
  file.put(int32_t{shape.n_layers});
  file.put(int32_t{shape.n_kv_heads});
  file.put(int32_t{shape.head_dim});
  file.put_text(row_type_name(shape.key_type));
  file.put_text(row_type_name(shape.value_type));
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    file.put(int32_t{shape.swa_window(layer)});
  }
  const auto for_each_head = [&](const auto& visit) {
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
        visit(layer, kv_head);
      }
    }
  };
  for_each_head([&](int layer, int kv_head) {
    check_visible(cache, layer, kv_head);
    const Cache::History history = cache.history(layer, kv_head);
    file.put(int32_t{cache.n_cached(layer, kv_head)});
    file.put(int32_t{history.trim.intact});
    file.put(int32_t{history.trim.settled});
    for (const int64_t count : {history.n_evicted, history.counts.saturated,
                                history.counts.nonfinite_keys, history.counts.nonfinite_values}) {
      file.put(count);
    }
  });
  for (const Column& column : kColumns) {
    const size_t row_bytes = column.row_bytes(shape);
    if (row_bytes == 0) {
      continue;
    }
    file.begin(column.section);
    for_each_head([&](int layer, int kv_head) {
      const HeadRows rows = cache.rows(layer, kv_head);
      const auto* const data = static_cast<const std::byte*>(column.of(rows));
      for_each_run(rows, [&](size_t first, size_t n) {
        file.refer({data + first * row_bytes, n * row_bytes});
      });
    });
  }
}

SavedCache::SavedCache(SectionFile& file, int n_positions) {
  SectionReader reader = file.read(kCacheSection);
  shape_.n_layers = reader.get_int("the number of layers", 1, kMost);
  shape_.n_kv_heads = reader.get_int("the number of KV heads", 1, kMost);
  shape_.head_dim = reader.get_int("the length of a key", 1, kMost);
  try {
    shape_.key_type = parse_row_type(reader.get_text());
    shape_.value_type = parse_row_type(reader.get_text());
  } catch (const Error& error) {
    reader.fail(error.what());
  }
  const auto windows = reader.get_array<int32_t>(static_cast<size_t>(shape_.n_layers));
  shape_.swa_windows.assign(windows.begin(), windows.end());
  if (std::ranges::min(windows) < 0) {
    reader.fail("a window is negative");
  }
  read_heads(reader, n_positions);
  reader.expect_end();

  shape_.stores_scores = file.has("scores");
  shape_.stores_mass = file.has("mass");
  shape_.stores_rotations = file.has("rotations");
  const size_t n_rows = heads_.back().first_row + static_cast<size_t>(heads_.back().n_rows);
  for (const Column& column : kColumns) {
    const size_t row_bytes = column.row_bytes(shape_);
    std::span<const std::byte>& bytes = columns_.emplace_back();
    if (row_bytes == 0) {
      continue;
    }
    SectionReader rows = file.read(column.section);
    if (rows.n_left() % row_bytes != 0 || rows.n_left() / row_bytes != n_rows) {
      rows.fail("it has " + std::to_string(rows.n_left()) + " bytes, but " +
                std::to_string(n_rows) + " rows of " + std::to_string(row_bytes) +
                " bytes are expected");
    }
    bytes = rows.take(rows.n_left());
  }
  check_positions(file, n_positions);
  check_rotations(file);
}

void SavedCache::read_heads(SectionReader& reader, int n_positions) {
  const size_t n_heads =
      static_cast<size_t>(shape_.n_layers) * static_cast<size_t>(shape_.n_kv_heads);
  size_t first_row = 0;
  for (size_t i = 0; i < n_heads; ++i) {
    Head head{};
    head.n_rows = reader.get_int("the number of a head's rows", 0, n_positions);
    head.first_row = first_row;
    first_row += static_cast<size_t>(head.n_rows);
    shape_.max_rows = std::max(shape_.max_rows, head.n_rows);
    Cache::TrimBounds& trim = head.history.trim;
    trim.intact = reader.get_int("the first position lost", 0, INT_MAX);
    trim.settled = reader.get_int("the position of the last loss", 0, n_positions);
    if ((trim.intact == INT_MAX) != (trim.settled == 0)) {
      reader.fail("a head has lost rows and has not");
    }
    Cache::AppendCounts& counts = head.history.counts;
    for (int64_t* const count : {&head.history.n_evicted, &counts.saturated, &counts.nonfinite_keys,
                                 &counts.nonfinite_values}) {
      *count = reader.get<int64_t>();
      if (*count < 0) {
        reader.fail("a count is negative");
      }
    }
    heads_.push_back(head);
  }
}

void SavedCache::check_positions(const SectionFile& file, int n_positions) const {
  for (const Head& head : heads_) {
    int32_t previous = -1;
    for (size_t row = 0; row < static_cast<size_t>(head.n_rows); ++row) {
      int32_t position;
      std::memcpy(&position,
                  columns_[kPositions].data() + (head.first_row + row) * sizeof(position),
                  sizeof(position));
      if (position <= previous || position >= n_positions) {
        throw Error(ErrorCode::kBadData, "'" + file.path() +
                                             "', section 'positions': " + std::to_string(position) +
                                             " follows " + std::to_string(previous) + " of " +
                                             std::to_string(n_positions) + " positions");
      }
      previous = position;
    }
  }
}

// A key is never rotated further than by its own position.
void SavedCache::check_rotations(const SectionFile& file) const {
  const std::span<const std::byte> column = columns_[kRotations];
  for (size_t at = 0; at < column.size(); at += sizeof(int32_t)) {
    int32_t rotation;
    int32_t position;
    std::memcpy(&rotation, column.data() + at, sizeof(rotation));
    std::memcpy(&position, columns_[kPositions].data() + at, sizeof(position));
    if (rotation < 0 || rotation > position) {
      throw Error(ErrorCode::kBadData,
                  "'" + file.path() + "', section 'rotations': a key at position " +
                      std::to_string(position) + " is rotated to " + std::to_string(rotation));
    }
  }
}

int SavedCache::n_cached(int layer, int kv_head) const {
  return heads_[static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
                static_cast<size_t>(kv_head)]
      .n_rows;
}

int SavedCache::next_contiguous() const {
  int n = 0;
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int kv_head = 0; shape_.swa_window(layer) == 0 && kv_head < shape_.n_kv_heads; ++kv_head) {
      n = std::max(n, n_cached(layer, kv_head));
    }
  }
  return n;
}

void SavedCache::restore(Cache& cache) const {
  const auto n_kv_heads = static_cast<size_t>(shape_.n_kv_heads);
  for (size_t i = 0; i < heads_.size(); ++i) {
    const Head& head = heads_[i];
    const int layer = static_cast<int>(i / n_kv_heads);
    const int kv_head = static_cast<int>(i % n_kv_heads);
    const Cache::Target target = cache.reserve(layer, kv_head, head.n_rows);
    for (size_t column = 0; column < columns_.size(); ++column) {
      const size_t row_bytes = kColumns[column].row_bytes(shape_);
      if (row_bytes > 0 && head.n_rows > 0) {
        std::memcpy(kColumns[column].at(target),
                    columns_[column].data() + head.first_row * row_bytes,
                    static_cast<size_t>(head.n_rows) * row_bytes);
      }
    }
    cache.restore(layer, kv_head, head.n_rows, head.history);
  }
  cache.record_peak();
}

}  // namespace winnow::cache
