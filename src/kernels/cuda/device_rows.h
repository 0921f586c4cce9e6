// Cached rows in device memory, and the kernels that score, select and move them.
//
// All pointers are to device memory; all calls start work on a stream and return. Heads may be those of one layer or of all
// layers, of one sequence or of many, each with its own number of rows: no head's result depends on the others. Results are
// the same bits as the CPU's (tests/support/eviction_grid.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/rows.h"
#include "kernels/cuda/device.h"

namespace winnow::kernels::cuda {

// Head sizes that the kernels are compiled for.
inline constexpr int kHeadDims[] = {64, 80, 96, 128, 256};

struct RowFormat {
  int head_dim = 0;
  cache::RowType key_type = cache::RowType::kF16;
  cache::RowType value_type = cache::RowType::kF16;

  size_t key_bytes() const { return static_cast<size_t>(head_dim) * element_bytes(key_type); }
  size_t value_bytes() const { return static_cast<size_t>(head_dim) * element_bytes(value_type); }
};

// Throws unsupported, naming the head sizes there are.
void check_head_dim(int head_dim);

// The rows of one KV head. Keys and values are aligned to 16 bytes.
struct HeadArrays {
  std::byte* keys;     // [n, head_dim]
  std::byte* values;   // [n, head_dim]
  int32_t* positions;  // [n], ascending
  float* scores;       // [n]
  int n;
  long long* mass = nullptr;  // [n] column mass, or null where none is kept
};

// The device's array of them.
struct Heads {
  const HeadArrays* heads;  // [n_heads]
  int n_heads;
  int most_rows;  // of any of them; decides the launch, not the result
};

// scores[i] = sign · the squared norm of key i, the canonical sum (kernels/cpu/rows-inl.h).
void score_norms(const RowFormat& format, const Heads& heads, float sign, const Stream& stream);

// scores[i] = filter · key i, the canonical dot product; filters [n_heads, head_dim].
void score_dots(const RowFormat& format, const Heads& heads, const float* filters,
                const Stream& stream);

// The scores of all heads side by side: to [n_heads, stride]; what is behind a head's n is not written.
void gather_scores(const Heads& heads, float* to, size_t stride, const Stream& stream);
// Likewise their column mass.
void gather_mass(const Heads& heads, long long* to, size_t stride, const Stream& stream);

// How many rows of a head stay: the first n_first, the last n_last, and the best of the others, n_keep in all;
// n_keep >= n_first + n_last. A head of at most n_keep rows stays as it is.
struct Quota {
  int n_keep;
  int n_first;
  int n_last;
};

// The rows kept of each head, ascending: slots [n_heads, stride], of which the first min(n_keep, n) are written.
struct Slots {
  int32_t* slots;
  size_t stride;  // at least the most that any head keeps
};

// Order: score descending, slot ascending; -0 equals +0, infinities in their place, NaN below all. n_nan [n_heads], or null:
// how many of the scores that were compared are NaN.
void select(const Heads& heads, const Quota* quotas, const Slots& slots, int32_t* n_nan,
            const Stream& stream);

// Moves the rows at `slots` together, in place and in order: keys, values, positions and, where there are any, scores and
// column mass. HeadArrays::n stays.
void compact(const RowFormat& format, const Heads& heads, const Quota* quotas, const Slots& slots,
             const Stream& stream);

// Copies row slots[i] of one head to row i of another, i < n, likewise.
void copy_rows(const RowFormat& format, const HeadArrays& from, const HeadArrays& to,
               const int32_t* slots, int n, const Stream& stream);

// select() and compact() in one launch, for a few heads: less to wait for.
void select_and_compact(const RowFormat& format, const Heads& heads, const Quota* quotas,
                        const Slots& slots, int32_t* n_nan, const Stream& stream);

}  // namespace winnow::kernels::cuda
