// What decoding does to rows while they are in registers: their scores with several queries, and their values' share in
// several outputs. One pass reads each row once for all query heads that fit the register file.

#if defined(WINNOW_KERNELS_CPU_DECODE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_DECODE_ROWS_INL_H_
#undef WINNOW_KERNELS_CPU_DECODE_ROWS_INL_H_
#else
#define WINNOW_KERNELS_CPU_DECODE_ROWS_INL_H_
#endif

#include "hwy/highway.h"
#include "kernels/blocks.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// How many query heads of a group share one pass over the rows: their accumulators fill the register file.
inline constexpr size_t kRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 32 : 16;
inline constexpr size_t kMaxHeads = kRegisters == 32 ? 6 : 3;
inline constexpr size_t kOutputVectors = kRegisters == 32 ? 4 : 3;

// Eighths (rows-inl.h) of a row fill half a vector of 16 floats, so two rows share one.
inline constexpr size_t kRowsOfEighths = kLanes == 16 ? 2 : 1;
inline constexpr size_t kScoreRows = HWY_MAX(kLanes, 8);  // rows whose scores come out together
static_assert(kTileRows % kScoreRows == 0);

// n rows of one type, `stride` elements apart.
template <class T>
struct RowTile {
  const T* rows;
  size_t stride;
  size_t n;
};

// Memory is asked for so long before it is read; what is not there does no harm. The processor's own prefetching starts
// anew on every page. A row is read once for a token, so it is asked for without a place in the outer caches
// (locality 0): weights need that place.
inline constexpr size_t kPrefetchBytes = 8192;

template <class T>
HWY_INLINE void prefetch(const T* data, size_t n) {
  const auto* const bytes = reinterpret_cast<const char*>(data);
  for (size_t at = 0; at < n * sizeof(T); at += 64) {
    __builtin_prefetch(bytes + at, 0, 0);
  }
}

// What lies kPrefetchBytes after a row.
template <class T>
HWY_INLINE void prefetch_ahead(const T* row, size_t dim) {
  prefetch(row + kPrefetchBytes / sizeof(T), dim);
}

// The eighths of kRowsOfEighths rows with each of kHeads queries: keys[i] are the rows, q [kHeads, dim];
// eighths of head h at eighths + h * 8 * kScoreRows.
template <size_t kHeads, class T>
HWY_INLINE void dot_rows(const T* const (&keys)[kRowsOfEighths], const float* HWY_RESTRICT q,
                         size_t dim, float* HWY_RESTRICT eighths) {
  const FloatTag d;
  constexpr size_t kParts = kChains / kLanes;
  Floats p[kHeads][kRowsOfEighths][kParts];
  for (size_t head = 0; head < kHeads; ++head) {
    for (size_t row = 0; row < kRowsOfEighths; ++row) {
      for (size_t part = 0; part < kParts; ++part) {
        p[head][row][part] = hn::Zero(d);
      }
    }
  }
  for (size_t at = 0; at < dim; at += kChains) {
    for (size_t part = 0; part < kParts; ++part) {
      Floats key[kRowsOfEighths];
      for (size_t row = 0; row < kRowsOfEighths; ++row) {
        key[row] = load_floats(d, keys[row] + at + part * kLanes);
      }
      for (size_t head = 0; head < kHeads; ++head) {
        const Floats query = hn::LoadU(d, q + head * dim + at + part * kLanes);
        for (size_t row = 0; row < kRowsOfEighths; ++row) {
          p[head][row][part] = hn::MulAdd(key[row], query, p[head][row][part]);
        }
      }
    }
  }
  for (size_t head = 0; head < kHeads; ++head) {
    fold_to_eighths(p[head], eighths + head * 8 * kScoreRows);
  }
}

// scores[head][row] = q[head] · row * scale for kHeads heads and the tile's rows. Writes whole groups of kScoreRows
// scores.
template <size_t kHeads, class T>
HWY_INLINE void score_rows(const RowTile<T>& keys, const float* HWY_RESTRICT q, size_t dim,
                           float scale, float* HWY_RESTRICT scores, size_t capacity) {
  HWY_ALIGN float eighths[kHeads * 8 * kScoreRows];
  for (size_t first = 0; first < keys.n; first += kScoreRows) {
    for (size_t row = 0; row < kScoreRows; row += kRowsOfEighths) {
      const T* rows[kRowsOfEighths];
      for (size_t i = 0; i < kRowsOfEighths; ++i) {
        const size_t index = first + row + i;
        rows[i] = keys.rows +
                  HWY_MIN(index, keys.n - 1) * keys.stride;  // the last row again, not beyond it
        prefetch_ahead(keys.rows + index * keys.stride, dim);
      }
      dot_rows<kHeads>(rows, q, dim, eighths + row * 8);
    }
    for (size_t head = 0; head < kHeads; ++head) {
      sum_eighths_of_rows(eighths + head * 8 * kScoreRows, scale, scores + head * capacity + first);
    }
  }
}

// Adds weights · values of the tile's rows to the outputs of kHeads heads, kVectors vectors of each from element `at`;
// with kSums, adds the weights themselves to sums [kHeads].
template <size_t kHeads, size_t kVectors, bool kGuard, bool kSums, class T>
HWY_INLINE void add_values(const RowTile<T>& values, const float* HWY_RESTRICT weights,
                           size_t capacity, size_t at, size_t dim, float* HWY_RESTRICT output,
                           float* HWY_RESTRICT sums) {
  const FloatTag d;
  Floats total[kHeads];
  Floats sum[kHeads][kVectors];
  for (size_t head = 0; head < kHeads; ++head) {
    total[head] = hn::Set(d, sums[head]);
    for (size_t v = 0; v < kVectors; ++v) {
      sum[head][v] = hn::LoadU(d, output + head * dim + at + v * kLanes);
    }
  }
  for (size_t row = 0; row < values.n; ++row) {
    if constexpr (kSums) {  // the first pass brings the row
      prefetch_ahead(values.rows + row * values.stride, dim);
    }
    Floats value[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      value[v] = load_floats(d, values.rows + row * values.stride + at + v * kLanes);
    }
    for (size_t head = 0; head < kHeads; ++head) {
      const float scalar = weights[head * capacity + row];
      if (kGuard && scalar == 0.0F) {
        continue;
      }
      const Floats weight = hn::Set(d, scalar);
      if constexpr (kSums) {
        total[head] = hn::Add(total[head], weight);
      }
      for (size_t v = 0; v < kVectors; ++v) {
        sum[head][v] = hn::MulAdd(weight, value[v], sum[head][v]);
      }
    }
  }
  for (size_t head = 0; head < kHeads; ++head) {
    if constexpr (kSums) {
      sums[head] = hn::GetLane(total[head]);
    }
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[head][v], d, output + head * dim + at + v * kLanes);
    }
  }
}

template <size_t kHeads, bool kGuard, class T>
HWY_INLINE void add_all_values(const RowTile<T>& values, const float* weights, size_t capacity,
                               size_t dim, float* output, float* sums) {
  // The pass that sums weights has registers for so many vectors of every head.
  constexpr size_t kFirst = HWY_MIN(kOutputVectors, (kRegisters - 2 - kHeads) / (kHeads + 1));
  size_t at = 0;
  if (dim >= kFirst * kLanes) {
    add_values<kHeads, kFirst, kGuard, true>(values, weights, capacity, at, dim, output, sums);
    at = kFirst * kLanes;
  } else {
    add_values<kHeads, 1, kGuard, true>(values, weights, capacity, at, dim, output, sums);
    at = kLanes;
  }
  for (; at + kOutputVectors * kLanes <= dim; at += kOutputVectors * kLanes) {
    add_values<kHeads, kOutputVectors, kGuard, false>(values, weights, capacity, at, dim, output,
                                                      sums);
  }
  for (; at < dim; at += kLanes) {
    add_values<kHeads, 1, kGuard, false>(values, weights, capacity, at, dim, output, sums);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif  // toggle
