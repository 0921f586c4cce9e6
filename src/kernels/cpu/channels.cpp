// Rows measured channel by channel: the bounds of each, and how much a row's channels differ.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/channels.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/decode_rows-inl.h"
#include "kernels/cpu/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Widens low and high by n rows, for kVectors vectors from element `at`.
template <size_t kVectors, class RowAt>
HWY_INLINE void widen_bounds(const RowAt& row_at, size_t n, size_t at, float* HWY_RESTRICT low,
                             float* HWY_RESTRICT high) {
  const FloatTag d;
  Floats least[kVectors];
  Floats greatest[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    least[v] = hn::LoadU(d, low + at + v * kLanes);
    greatest[v] = hn::LoadU(d, high + at + v * kLanes);
  }
  for (size_t i = 0; i < n; ++i) {
    const auto* const row = row_at(i) + at;
    for (size_t v = 0; v < kVectors; ++v) {
      const Floats x = load_floats(d, row + v * kLanes);
      least[v] = hn::IfThenElse(hn::Lt(x, least[v]), x, least[v]);  // false for NaN
      greatest[v] = hn::IfThenElse(hn::Gt(x, greatest[v]), x, greatest[v]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(least[v], d, low + at + v * kLanes);
    hn::StoreU(greatest[v], d, high + at + v * kLanes);
  }
}

void channel_bounds_impl(const RowVectors& rows, std::span<const int> slots, std::span<float> low,
                         std::span<float> high, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  constexpr size_t kBlockSlots = 64;
  const size_t dim = padded_dim(rows.head_dim);
  float* const least = scratch.take_filled(dim, -kMinusInfinity).data();
  float* const greatest = scratch.take_filled(dim, kMinusInfinity).data();
  for_blocks<kBlockSlots>(rows, slots, scratch,
                          [&](size_t /*first*/, size_t n, const auto& row_at) HWY_ATTR {
                            for_columns(dim, [&](auto vectors, size_t at) HWY_ATTR {
                              widen_bounds<vectors.value>(row_at, n, at, least, greatest);
                            });
                          });
  std::copy_n(least, low.size(), low.begin());
  std::copy_n(greatest, high.size(), high.begin());
}

constexpr size_t kParts = kChains / kLanes;

// The eighths of sums over the elements of kRowsOfEighths rows side by side: add(row, at, sum) adds a vector of elements, from
// `at` on, to its chains.
template <class Add>
HWY_INLINE void sum_rows(size_t dim, const Add& add, float* HWY_RESTRICT eighths) {
  Floats sums[kRowsOfEighths][kParts];
  for (size_t row = 0; row < kRowsOfEighths; ++row) {
    for (size_t part = 0; part < kParts; ++part) {
      sums[row][part] = hn::Zero(FloatTag());
    }
  }
  for (size_t at = 0; at < dim; at += kChains) {
    for (size_t row = 0; row < kRowsOfEighths; ++row) {
      for (size_t part = 0; part < kParts; ++part) {
        sums[row][part] = add(row, at + part * kLanes, sums[row][part]);
      }
    }
  }
  fold_to_eighths(sums, eighths);
}

// scaled = (row - offset) * scale of rows i …, and the eighths of their sums; all [dim].
template <class RowAt>
HWY_INLINE void scale_rows(const RowAt& row_at, size_t i, size_t n,
                           const float* HWY_RESTRICT offset, const float* HWY_RESTRICT scale,
                           size_t dim, float* HWY_RESTRICT scaled, float* HWY_RESTRICT eighths) {
  const FloatTag d;
  decltype(row_at(0)) rows[kRowsOfEighths];
  for (size_t row = 0; row < kRowsOfEighths; ++row) {
    rows[row] = row_at(HWY_MIN(i + row, n - 1));
  }
  const auto add = [&](size_t row, size_t at, Floats sum) HWY_ATTR {
    const Floats x = hn::Mul(hn::Sub(load_floats(d, rows[row] + at), hn::LoadU(d, offset + at)),
                             hn::LoadU(d, scale + at));
    hn::Store(x, d, scaled + (i + row) * dim + at);
    return hn::Add(sum, x);
  };
  sum_rows(dim, add, eighths + i * 8);
}

// The eighths of Σ (x - mean)² over the first head_dim elements of kRowsOfEighths rows.
template <bool kIsPadded>
HWY_INLINE void square_distances(const float* HWY_RESTRICT rows, const float* HWY_RESTRICT means,
                                 size_t dim, size_t head_dim, float* HWY_RESTRICT eighths) {
  const FloatTag d;
  const auto add = [&](size_t row, size_t at, Floats sum) HWY_ATTR {
    Floats distance = hn::Sub(hn::Load(d, rows + row * dim + at), hn::Set(d, means[row]));
    if (kIsPadded) {
      distance = hn::IfThenElseZero(hn::FirstN(d, head_dim > at ? head_dim - at : 0), distance);
    }
    return hn::MulAdd(distance, distance, sum);
  };
  sum_rows(dim, add, eighths);
}

void channel_deviations_impl(const RowVectors& rows, std::span<const int> slots,
                             std::span<const float> offset, std::span<const float> scale,
                             std::span<float> deviations, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<const float> offsets = padded(offset, scratch);
  const std::span<const float> scales = padded(scale, scratch);
  const size_t dim = offsets.size();
  const auto head_dim = static_cast<size_t>(rows.head_dim);
  const bool is_padded = dim != head_dim;
  const auto n_channels = static_cast<float>(rows.head_dim);
  float* const scaled = scratch.take<float>(kScoreRows * dim).data();
  for_blocks<kScoreRows>(
      rows, slots, scratch, [&](size_t first, size_t n, const auto& row_at) HWY_ATTR {
        HWY_ALIGN float eighths[8 * kScoreRows];
        HWY_ALIGN float sums[kScoreRows];
        for (size_t i = 0; i < kScoreRows; i += kRowsOfEighths) {
          scale_rows(row_at, i, n, offsets.data(), scales.data(), dim, scaled, eighths);
        }
        sum_eighths_of_rows(eighths, 1.0F, sums);
        for (float& sum : sums) {
          sum /= n_channels;
        }
        for (size_t i = 0; i < kScoreRows; i += kRowsOfEighths) {
          if (is_padded) {
            square_distances<true>(scaled + i * dim, sums + i, dim, head_dim, eighths + i * 8);
          } else {
            square_distances<false>(scaled + i * dim, sums + i, dim, head_dim, eighths + i * 8);
          }
        }
        sum_eighths_of_rows(eighths, 1.0F, sums);
        for (size_t i = 0; i < n; ++i) {
          deviations[first + i] = std::sqrt(sums[i] / std::max(n_channels - 1.0F, 1.0F));
        }
      });
}

void count_better_impl(const float* HWY_RESTRICT x, size_t n, int32_t* HWY_RESTRICT counts) {
  const FloatTag d;
  const IntTag di;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const Floats self = hn::LoadU(d, x + i);
    auto count = hn::Zero(di);
    const auto add = [&](auto is_better) HWY_ATTR {
      count = hn::Sub(count, hn::VecFromMask(di, hn::RebindMask(di, is_better)));
    };
    for (size_t j = 0; j < i; ++j) {
      add(hn::Ge(hn::Set(d, x[j]), self));
    }
    const Floats lanes = hn::Iota(d, 0.0F);
    for (size_t j = i; j < i + kLanes; ++j) {
      const Floats other = hn::Set(d, x[j]);
      const auto is_later = hn::Gt(lanes, hn::Set(d, static_cast<float>(j - i)));
      add(hn::Or(hn::Gt(other, self), hn::And(hn::Eq(other, self), is_later)));
    }
    for (size_t j = i + kLanes; j < n; ++j) {
      add(hn::Gt(hn::Set(d, x[j]), self));
    }
    hn::StoreU(count, di, counts + i);
  }
  for (; i < n; ++i) {
    counts[i] = 0;
    for (size_t j = 0; j < n; ++j) {
      counts[i] += x[j] > x[i] || (x[j] == x[i] && j < i) ? 1 : 0;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(channel_bounds_impl);

void channel_bounds(const RowVectors& rows, std::span<const int> slots, std::span<float> low,
                    std::span<float> high, Scratch& scratch) {
  WINNOW_CHECK(std::ssize(low) == rows.head_dim && std::ssize(high) == rows.head_dim);
  HWY_DYNAMIC_DISPATCH(channel_bounds_impl)(rows, slots, low, high, scratch);
}

HWY_EXPORT(channel_deviations_impl);

void channel_deviations(const RowVectors& rows, std::span<const int> slots,
                        std::span<const float> offset, std::span<const float> scale,
                        std::span<float> deviations, Scratch& scratch) {
  WINNOW_CHECK(std::ssize(offset) == rows.head_dim && std::ssize(scale) == rows.head_dim &&
               deviations.size() == slots.size());
  HWY_DYNAMIC_DISPATCH(channel_deviations_impl)(rows, slots, offset, scale, deviations, scratch);
}

HWY_EXPORT(count_better_impl);

void count_better(std::span<const float> x, std::span<int32_t> counts) {
  WINNOW_CHECK(counts.size() == x.size());
  HWY_DYNAMIC_DISPATCH(count_better_impl)(x.data(), x.size(), counts.data());
}

}  // namespace winnow::kernels
#endif
