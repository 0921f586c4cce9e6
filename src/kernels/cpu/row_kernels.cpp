// Arithmetic on rows for scoring: each row is brought to floats once, in the order of the slots.

#include "kernels/row_kernels.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_kernels.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/decode_rows-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// The vector with zeros behind it: [padded_dim].
std::span<const float> padded(std::span<const float> vector, Scratch& scratch) {
  const std::span<float> result =
      scratch.take_filled(padded_dim(static_cast<int>(vector.size())), 0.0F);
  std::copy(vector.begin(), vector.end(), result.begin());
  return result;
}

HWY_INLINE void load_row(const RowVectors& rows, int slot, float* HWY_RESTRICT to) {
  const size_t row_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.type);
  load_rows(rows.type, rows.elements + static_cast<size_t>(slot) * row_bytes, 1, rows.head_dim, to);
}

template <class T>
HWY_INLINE const T* row_in_cache(const RowVectors& rows, int slot) {
  return reinterpret_cast<const T*>(rows.elements) +
         static_cast<size_t>(slot) * static_cast<size_t>(rows.head_dim);
}

// The dot products of at most kScoreRows rows, each `dim` elements of one type, a multiple of kChains.
template <class T, class RowAt>
HWY_INLINE void dot_group(const RowAt& row_at, size_t n, const float* HWY_RESTRICT vector,
                          size_t dim, float* HWY_RESTRICT dots) {
  HWY_ALIGN float eighths[8 * kScoreRows];
  HWY_ALIGN float sums[kScoreRows];
  for (size_t row = 0; row < kScoreRows; row += kRowsOfEighths) {
    const T* rows[kRowsOfEighths];
    for (size_t i = 0; i < kRowsOfEighths; ++i) {
      rows[i] = row_at(HWY_MIN(row + i, n - 1));  // the last row again, not beyond it
    }
    dot_rows<1>(rows, vector, dim, eighths + row * 8);
  }
  sum_eighths_of_rows(eighths, 1.0F, sums);
  std::copy_n(sums, n, dots);
}

template <class T>
HWY_INLINE void dots_in_cache(const RowVectors& rows, std::span<const int> slots,
                              const float* vector, float* dots) {
  for (size_t first = 0; first < slots.size(); first += kScoreRows) {
    dot_group<T>([&](size_t i) { return row_in_cache<T>(rows, slots[first + i]); },
                 HWY_MIN(kScoreRows, slots.size() - first), vector,
                 static_cast<size_t>(rows.head_dim), dots + first);
  }
}

// For head sizes that are no multiple of kChains.
HWY_INLINE void dots_of_padded(const RowVectors& rows, std::span<const int> slots,
                               const float* vector, float* dots, Scratch& scratch) {
  const size_t dim = padded_dim(rows.head_dim);
  const std::span<float> floats = scratch.take<float>(kScoreRows * dim);
  for (size_t first = 0; first < slots.size(); first += kScoreRows) {
    const size_t n = HWY_MIN(kScoreRows, slots.size() - first);
    for (size_t i = 0; i < n; ++i) {
      load_row(rows, slots[first + i], floats.data() + i * dim);
    }
    dot_group<float>([&](size_t i) { return floats.data() + i * dim; }, n, vector, dim,
                     dots + first);
  }
}

void row_dots_impl(const RowVectors& rows, std::span<const int> slots,
                   std::span<const float> vector, std::span<float> dots, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<const float> with_zeros = padded(vector, scratch);
  if (with_zeros.size() != vector.size()) {
    dots_of_padded(rows, slots, with_zeros.data(), dots.data(), scratch);
    return;
  }
  switch (rows.type) {
    case cache::RowType::kF32:
      return dots_in_cache<float>(rows, slots, with_zeros.data(), dots.data());
    case cache::RowType::kF16:
      return dots_in_cache<hwy::float16_t>(rows, slots, with_zeros.data(), dots.data());
    case cache::RowType::kBf16:
      return dots_in_cache<hwy::bfloat16_t>(rows, slots, with_zeros.data(), dots.data());
  }
}

// sum += weights[i] · row i over n rows, for kVectors vectors from element `at`; rows of weight 0 are not read.
template <size_t kVectors, class RowAt>
HWY_INLINE void add_rows(const RowAt& row_at, const float* HWY_RESTRICT weights, size_t n,
                         size_t at, float* HWY_RESTRICT sum) {
  const FloatTag d;
  Floats block[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    block[v] = hn::Zero(d);
  }
  for (size_t i = 0; i < n; ++i) {
    if (weights[i] == 0.0F) {
      continue;
    }
    const auto* const row = row_at(i);
    const Floats weight = hn::Set(d, weights[i]);
    for (size_t v = 0; v < kVectors; ++v) {
      block[v] = hn::MulAdd(weight, load_floats(d, row + at + v * kLanes), block[v]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    float* const out = sum + at + v * kLanes;
    hn::StoreU(hn::Add(hn::LoadU(d, out), block[v]), d, out);
  }
}

template <class RowAt>
HWY_INLINE void add_block(const RowAt& row_at, const float* weights, size_t n, size_t dim,
                          float* sum) {
  constexpr size_t kVectors = 8;
  size_t at = 0;
  for (; at + kVectors * kLanes <= dim; at += kVectors * kLanes) {
    add_rows<kVectors>(row_at, weights, n, at, sum);
  }
  for (; at < dim; at += kLanes) {
    add_rows<1>(row_at, weights, n, at, sum);
  }
}

void weighted_sum_impl(const RowVectors& rows, std::span<const int> slots,
                       std::span<const float> weights, std::span<float> sum, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  constexpr size_t kBlockSlots = 64;
  const auto head_dim = static_cast<size_t>(rows.head_dim);
  const size_t dim = padded_dim(rows.head_dim);
  const std::span<float> total = scratch.take_filled(dim, 0.0F);
  const std::span<float> floats = scratch.take<float>(dim == head_dim ? 0 : kBlockSlots * dim);
  for (size_t first = 0; first < slots.size(); first += kBlockSlots) {
    const size_t n = HWY_MIN(kBlockSlots, slots.size() - first);
    const auto add = [&](const auto& row_at)
                         HWY_ATTR { add_block(row_at, &weights[first], n, dim, total.data()); };
    if (dim != head_dim) {
      for (size_t i = 0; i < n; ++i) {
        load_row(rows, slots[first + i], floats.data() + i * dim);
      }
      add([&](size_t i) { return floats.data() + i * dim; });
    } else if (rows.type == cache::RowType::kF32) {
      add([&](size_t i) { return row_in_cache<float>(rows, slots[first + i]); });
    } else if (rows.type == cache::RowType::kF16) {
      add([&](size_t i) { return row_in_cache<hwy::float16_t>(rows, slots[first + i]); });
    } else {
      add([&](size_t i) { return row_in_cache<hwy::bfloat16_t>(rows, slots[first + i]); });
    }
  }
  std::copy_n(total.begin(), sum.size(), sum.begin());
}

void channel_bounds_impl(const RowVectors& rows, std::span<const int> slots, std::span<float> low,
                         std::span<float> high, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const FloatTag d;
  const size_t dim = padded_dim(rows.head_dim);
  float* const row = scratch.take<float>(dim).data();
  float* const least = scratch.take_filled(dim, -kMinusInfinity).data();
  float* const greatest = scratch.take_filled(dim, kMinusInfinity).data();
  for (const int slot : slots) {
    load_row(rows, slot, row);
    for (size_t at = 0; at < dim; at += kLanes) {
      const Floats x = hn::LoadU(d, row + at);
      const Floats l = hn::LoadU(d, least + at);
      const Floats g = hn::LoadU(d, greatest + at);
      hn::StoreU(hn::IfThenElse(hn::Lt(x, l), x, l), d, least + at);  // false for NaN
      hn::StoreU(hn::IfThenElse(hn::Gt(x, g), x, g), d, greatest + at);
    }
  }
  std::copy_n(least, low.size(), low.begin());
  std::copy_n(greatest, high.size(), high.begin());
}

// A sum over the elements of a row in the canonical chains.
class CanonicalSum {
 public:
  HWY_INLINE CanonicalSum() {
    for (Floats& chain : chains_) {
      chain = hn::Zero(FloatTag());
    }
  }
  HWY_INLINE Floats& chain(size_t part) {
    return chains_[part];
  }  // elements part * kLanes … (mod kChains)
  HWY_INLINE float total() const {
    HWY_ALIGN float chains[kChains];
    for (size_t part = 0; part < kParts; ++part) {
      hn::Store(chains_[part], FloatTag(), chains + part * kLanes);
    }
    return sum_chains(chains);
  }
  static constexpr size_t kParts = kChains / kLanes;

 private:
  Floats chains_[kParts];
};

// Replaces a row by (row - offset) * scale and returns the canonical sum of its elements.
HWY_INLINE float normalize(const float* HWY_RESTRICT offset, const float* HWY_RESTRICT scale,
                           size_t dim, float* HWY_RESTRICT row) {
  const FloatTag d;
  CanonicalSum sum;
  for (size_t start = 0; start < dim; start += kChains) {
    for (size_t part = 0; part < CanonicalSum::kParts; ++part) {
      const size_t at = start + part * kLanes;
      const Floats x = hn::Mul(hn::Sub(hn::LoadU(d, row + at), hn::LoadU(d, offset + at)),
                               hn::LoadU(d, scale + at));
      hn::StoreU(x, d, row + at);
      sum.chain(part) = hn::Add(sum.chain(part), x);
    }
  }
  return sum.total();
}

// The canonical sum of (row - mean)^2 over the first n elements of a padded row.
HWY_INLINE float squared_distance(const float* HWY_RESTRICT row, float mean, size_t n) {
  const FloatTag d;
  CanonicalSum sum;
  for (size_t start = 0; start < n; start += kChains) {
    for (size_t part = 0; part < CanonicalSum::kParts; ++part) {
      const size_t at = start + part * kLanes;
      const Floats distance = hn::IfThenElseZero(hn::FirstN(d, n > at ? n - at : 0),
                                                 hn::Sub(hn::LoadU(d, row + at), hn::Set(d, mean)));
      sum.chain(part) = hn::MulAdd(distance, distance, sum.chain(part));
    }
  }
  return sum.total();
}

void channel_deviations_impl(const RowVectors& rows, std::span<const int> slots,
                             std::span<const float> offset, std::span<const float> scale,
                             std::span<float> deviations, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<const float> offsets = padded(offset, scratch);
  const std::span<const float> scales = padded(scale, scratch);
  const std::span<float> row = scratch.take<float>(offsets.size());
  const auto n_channels = static_cast<size_t>(rows.head_dim);
  const auto n = static_cast<float>(rows.head_dim);
  for (size_t i = 0; i < slots.size(); ++i) {
    load_row(rows, slots[i], row.data());
    const float mean = normalize(offsets.data(), scales.data(), row.size(), row.data()) / n;
    const float sum = squared_distance(row.data(), mean, n_channels);
    deviations[i] = std::sqrt(sum / std::max(n - 1.0F, 1.0F));
  }
}

void squared_norms_impl(const RowVectors& rows, std::span<const int> slots, std::span<float> norms,
                        Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<float> row = scratch.take<float>(padded_dim(rows.head_dim));
  for (size_t i = 0; i < slots.size(); ++i) {
    load_row(rows, slots[i], row.data());
    norms[i] = squared_distance(row.data(), 0.0F, row.size());
  }
}

void softmax_impl(std::span<float> x) {
  float highest = kMinusInfinity;
  for (const float each : x) {
    highest = each > highest ? each : highest;
  }
  const FloatTag d;
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    const Floats exponent = hn::Sub(hn::LoadU(d, &x[i]), hn::Set(d, highest));
    hn::StoreU(exp_nonpositive(d, exponent), d, &x[i]);
  }
  for (; i < x.size(); ++i) {
    x[i] = exp_nonpositive(x[i] - highest);
  }
  double sum = 0.0;
  for (const float each : x) {
    sum += std::isnan(each) ? 0.0 : static_cast<double>(each);
  }
  for (float& each : x) {
    each = static_cast<float>(static_cast<double>(each) / sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(row_dots_impl);

void row_dots(const RowVectors& rows, std::span<const int> slots, std::span<const float> vector,
              std::span<float> dots, Scratch& scratch) {
  WINNOW_CHECK(std::ssize(vector) == rows.head_dim && dots.size() == slots.size());
  HWY_DYNAMIC_DISPATCH(row_dots_impl)(rows, slots, vector, dots, scratch);
}

HWY_EXPORT(weighted_sum_impl);

void weighted_sum(const RowVectors& rows, std::span<const int> slots,
                  std::span<const float> weights, std::span<float> sum, Scratch& scratch) {
  WINNOW_CHECK(std::ssize(sum) == rows.head_dim && weights.size() == slots.size());
  HWY_DYNAMIC_DISPATCH(weighted_sum_impl)(rows, slots, weights, sum, scratch);
}

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

HWY_EXPORT(squared_norms_impl);

void squared_norms(const RowVectors& rows, std::span<const int> slots, std::span<float> norms,
                   Scratch& scratch) {
  WINNOW_CHECK(norms.size() == slots.size());
  HWY_DYNAMIC_DISPATCH(squared_norms_impl)(rows, slots, norms, scratch);
}

HWY_EXPORT(softmax_impl);

void softmax(std::span<float> x) {
  HWY_DYNAMIC_DISPATCH(softmax_impl)(x);
}

}  // namespace winnow::kernels
#endif
