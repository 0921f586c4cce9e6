// Heads to score, cut and move, and hashes of what comes out: the same numbers for every backend, on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "cache/rows.h"

namespace winnow::test {

// What rows are made of.
enum class Content {
  kRandom,
  kTied,     // five different rows
  kEqual,    // one row again and again
  kSpecial,  // in some rows NaN, infinities, zeros of both signs, subnormal and largest numbers
};

struct EvictionCase {
  cache::RowType type = cache::RowType::kF16;
  int head_dim = 0;
  int n_rows = 0;
  int n_keep = 0;
  int n_first = 0;  // protected
  int n_last = 0;
  Content content = Content::kRandom;
  uint32_t seed = 0;
};

// All row types and head sizes that a GPU has kernels for, lengths around powers of two, and every kind of content.
std::vector<EvictionCase> eviction_grid();
std::string name_of(const EvictionCase& c);

struct EvictionInput {
  std::vector<std::byte> keys;    // [n_rows, head_dim]
  std::vector<std::byte> values;  // the same
  std::vector<int32_t> positions;
  std::vector<float> filter;  // [head_dim]
};
EvictionInput input_of(const EvictionCase& c);

// What scoring, selecting by dot products with the filter, and moving rows give.
struct Evicted {
  std::vector<float> norms;  // [n_rows] squared
  std::vector<float> dots;   // [n_rows]
  std::vector<int> slots;    // [n_keep]
  int n_nan = 0;
  std::vector<std::byte> keys;  // of the rows kept
  std::vector<std::byte> values;
  std::vector<int32_t> positions;
};

// FNV-1a, 64 bits. All NaN count as one.
struct EvictionHashes {
  uint64_t norms = 0;
  uint64_t dots = 0;
  uint64_t slots = 0;  // and n_nan
  uint64_t rows = 0;

  bool operator==(const EvictionHashes&) const = default;
};
EvictionHashes hashes_of(const Evicted& evicted);

// Those of eviction_grid(), computed once (tests/support/eviction_golden.inc).
std::span<const EvictionHashes> golden_hashes();

// A line of that file.
std::string golden_line(const EvictionHashes& hashes);

// n elements of `type` from raw bits, so that no conversion has a part in them: between 1/64 and 8, of either sign.
std::vector<std::byte> random_elements(uint32_t seed, cache::RowType type, size_t n);

}  // namespace winnow::test
