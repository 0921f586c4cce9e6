// The rows of a cache in the sections of a file, and back.
#pragma once

#include <vector>

#include "base/section_file.h"
#include "cache/cache.h"

namespace winnow::cache {

// Adds the cache: a section that says what each head is and has been through, and one for each column of its rows. Rows
// that were evicted and still take up slots are left out. The cache must stay as it is until the file is written. Throws
// invalid_argument where rows are hidden from attention.
void put_cache(const Cache& cache, SectionWriter& file);

// A cache in a file, checked but for keys, values and scores, which may be any bits. Refers to the file.
class SavedCache {
 public:
  // n_positions: how many were fed. Throws bad_data.
  SavedCache(SectionFile& file, int n_positions);

  const CacheShape& shape() const { return shape_; }  // max_rows: of the longest head
  int n_cached(int layer, int kv_head) const;
  int next_contiguous() const;  // as the cache's

  // Fills an empty cache of the same shape and at least so many max_rows.
  void restore(Cache& cache) const;

 private:
  struct Head {
    int n_rows;
    size_t first_row;  // in the columns
    Cache::History history;
  };

  void read_heads(SectionReader& reader, int n_positions);
  void check_positions(const SectionFile& file, int n_positions) const;
  void check_rotations(const SectionFile& file) const;

  CacheShape shape_;
  std::vector<Head> heads_;                          // [n_layers, n_kv_heads]
  std::vector<std::span<const std::byte>> columns_;  // [n_columns], each [n rows of all heads]
};

}  // namespace winnow::cache
