// Sums over rows, and over the elements of each.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_sums.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/decode_rows-inl.h"
#include "kernels/cpu/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// The rows i … of a group of n that share a vector of eighths; behind the last it comes again.
template <class RowAt>
HWY_INLINE auto rows_of_eighths(const RowAt& row_at, size_t i, size_t n) {
  using Row = decltype(row_at(0));
  struct Rows {
    Row rows[kRowsOfEighths];
  } group;
  for (size_t row = 0; row < kRowsOfEighths; ++row) {
    group.rows[row] = row_at(HWY_MIN(i + row, n - 1));
  }
  return group;
}

void read_rows_impl(const RowVectors& rows, std::span<const int> slots, std::span<float> floats,
                    Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(rows.head_dim);
  const size_t row_bytes = dim * cache::element_bytes(rows.type);
  const std::span<float> with_zeros = scratch.take<float>(padded_dim(rows.head_dim));
  for (size_t i = 0; i < slots.size(); ++i) {
    load_rows(rows.type, rows.elements + static_cast<size_t>(slots[i]) * row_bytes, 1,
              rows.head_dim, with_zeros.data());
    std::copy_n(with_zeros.begin(), dim, floats.data() + i * dim);
  }
}

void row_dots_impl(const RowVectors& rows, std::span<const int> slots,
                   std::span<const float> vector, std::span<float> dots, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<const float> with_zeros = padded(vector, scratch);
  for_blocks<kScoreRows>(rows, slots, scratch,
                         [&](size_t first, size_t n, const auto& row_at) HWY_ATTR {
                           HWY_ALIGN float eighths[8 * kScoreRows];
                           HWY_ALIGN float sums[kScoreRows];
                           for (size_t i = 0; i < kScoreRows; i += kRowsOfEighths) {
                             dot_rows<1>(rows_of_eighths(row_at, i, n).rows, with_zeros.data(),
                                         with_zeros.size(), eighths + i * 8);
                           }
                           sum_eighths_of_rows(eighths, 1.0F, sums);
                           std::copy_n(sums, n, dots.data() + first);
                         });
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
    const auto* const row = row_at(i) + at;
    const Floats weight = hn::Set(d, weights[i]);
    for (size_t v = 0; v < kVectors; ++v) {
      block[v] = hn::MulAdd(weight, load_floats(d, row + v * kLanes), block[v]);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    float* const out = sum + at + v * kLanes;
    hn::StoreU(hn::Add(hn::LoadU(d, out), block[v]), d, out);
  }
}

void weighted_sum_impl(const RowVectors& rows, std::span<const int> slots,
                       std::span<const float> weights, std::span<float> sum, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  constexpr size_t kBlockSlots = 64;
  const std::span<float> total = scratch.take_filled(padded_dim(rows.head_dim), 0.0F);
  for_blocks<kBlockSlots>(
      rows, slots, scratch, [&](size_t first, size_t n, const auto& row_at) HWY_ATTR {
        for_columns(total.size(), [&](auto vectors, size_t at) HWY_ATTR {
          add_rows<vectors.value>(row_at, weights.data() + first, n, at, total.data());
        });
      });
  std::copy_n(total.begin(), sum.size(), sum.begin());
}

// The eighths of the squares of kRowsOfEighths rows.
template <class T>
HWY_INLINE void square_rows(const T* const (&rows)[kRowsOfEighths], size_t dim,
                            float* HWY_RESTRICT eighths) {
  const FloatTag d;
  constexpr size_t kParts = kChains / kLanes;
  Floats p[kRowsOfEighths][kParts];
  for (auto& row : p) {
    for (Floats& part : row) {
      part = hn::Zero(d);
    }
  }
  for (size_t at = 0; at < dim; at += kChains) {
    for (size_t row = 0; row < kRowsOfEighths; ++row) {
      for (size_t part = 0; part < kParts; ++part) {
        const Floats x = load_floats(d, rows[row] + at + part * kLanes);
        p[row][part] = hn::MulAdd(x, x, p[row][part]);
      }
    }
  }
  fold_to_eighths(p, eighths);
}

void squared_norms_impl(const RowVectors& rows, std::span<const int> slots, std::span<float> norms,
                        Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const size_t dim = padded_dim(rows.head_dim);
  for_blocks<kScoreRows>(rows, slots, scratch,
                         [&](size_t first, size_t n, const auto& row_at) HWY_ATTR {
                           HWY_ALIGN float eighths[8 * kScoreRows];
                           HWY_ALIGN float sums[kScoreRows];
                           for (size_t i = 0; i < kScoreRows; i += kRowsOfEighths) {
                             square_rows(rows_of_eighths(row_at, i, n).rows, dim, eighths + i * 8);
                           }
                           sum_eighths_of_rows(eighths, 1.0F, sums);
                           std::copy_n(sums, n, norms.data() + first);
                         });
}

void inverse_norms_impl(float* HWY_RESTRICT x, size_t n) {
  const auto invert = [](auto d, auto squared) HWY_ATTR {
    const auto is_number = hn::And(hn::Gt(squared, hn::Zero(d)), hn::IsFinite(squared));
    return hn::IfThenElseZero(is_number, hn::Div(hn::Set(d, 1.0F), hn::Sqrt(squared)));
  };
  const FloatTag d;
  const hn::CappedTag<float, 1> one;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(invert(d, hn::LoadU(d, x + i)), d, x + i);
  }
  for (; i < n; ++i) {
    hn::StoreU(invert(one, hn::LoadU(one, x + i)), one, x + i);
  }
}

// Calls body(doubles, chain) for the 8 chains of doubles that the elements j = chain (mod 8) of 8 floats are.
template <class Body>
HWY_INLINE void for_double_chains(const float* HWY_RESTRICT eight, const Body& body) {
  const hn::CappedTag<double, 8> d;
  const hn::Rebind<float, decltype(d)> df;
  for (size_t chain = 0; chain < 8; chain += hn::Lanes(d)) {
    body(hn::PromoteTo(d, hn::LoadU(df, eight + chain)), chain);
  }
}

// The sum in double, NaN left out: chain j of 8 over the elements j (mod 8), then the chains in order.
HWY_INLINE double sum_of_numbers(const float* HWY_RESTRICT x, size_t n) {
  const hn::CappedTag<double, 8> d;
  HWY_ALIGN double chains[8] = {};
  HWY_ALIGN float rest[8] = {};
  const auto add = [&](const float* eight) HWY_ATTR {
    for_double_chains(eight, [&](auto each, size_t chain) HWY_ATTR {
      const auto number = hn::IfThenZeroElse(hn::IsNaN(each), each);
      hn::Store(hn::Add(hn::Load(d, chains + chain), number), d, chains + chain);
    });
  };
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    add(x + i);
  }
  std::copy_n(x + i, n - i, rest);
  add(rest);
  double sum = 0.0;
  for (const double chain : chains) {
    sum += chain;
  }
  return sum;
}

void softmax_impl(std::span<float> x) {
  const FloatTag d;
  auto highest_of_lanes = hn::Set(d, kMinusInfinity);
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    const Floats each = hn::LoadU(d, &x[i]);
    highest_of_lanes = hn::IfThenElse(hn::Gt(each, highest_of_lanes), each, highest_of_lanes);
  }
  float highest = hn::GetLane(hn::MaxOfLanes(d, highest_of_lanes));
  for (; i < x.size(); ++i) {
    highest = x[i] > highest ? x[i] : highest;
  }
  for (i = 0; i + kLanes <= x.size(); i += kLanes) {
    const Floats exponent = hn::Sub(hn::LoadU(d, &x[i]), hn::Set(d, highest));
    hn::StoreU(exp_nonpositive(d, exponent), d, &x[i]);
  }
  for (; i < x.size(); ++i) {
    x[i] = exp_nonpositive(x[i] - highest);
  }
  const double sum = sum_of_numbers(x.data(), x.size());
  const hn::CappedTag<double, 8> dd;
  const hn::Rebind<float, decltype(dd)> df;
  for (i = 0; i + 8 <= x.size(); i += 8) {
    for_double_chains(&x[i], [&](auto each, size_t chain) HWY_ATTR {
      hn::StoreU(hn::DemoteTo(df, hn::Div(each, hn::Set(dd, sum))), df, &x[i + chain]);
    });
  }
  for (; i < x.size(); ++i) {
    x[i] = static_cast<float>(static_cast<double>(x[i]) / sum);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(read_rows_impl);

void read_rows(const RowVectors& rows, std::span<const int> slots, std::span<float> floats,
               Scratch& scratch) {
  WINNOW_CHECK(floats.size() == slots.size() * static_cast<size_t>(rows.head_dim));
  HWY_DYNAMIC_DISPATCH(read_rows_impl)(rows, slots, floats, scratch);
}

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

HWY_EXPORT(squared_norms_impl);

void squared_norms(const RowVectors& rows, std::span<const int> slots, std::span<float> norms,
                   Scratch& scratch) {
  WINNOW_CHECK(norms.size() == slots.size());
  HWY_DYNAMIC_DISPATCH(squared_norms_impl)(rows, slots, norms, scratch);
}

HWY_EXPORT(inverse_norms_impl);

void inverse_norms(std::span<float> squared_norms) {
  HWY_DYNAMIC_DISPATCH(inverse_norms_impl)(squared_norms.data(), squared_norms.size());
}

HWY_EXPORT(softmax_impl);

void softmax(std::span<float> x) {
  HWY_DYNAMIC_DISPATCH(softmax_impl)(x);
}

}  // namespace winnow::kernels
#endif
