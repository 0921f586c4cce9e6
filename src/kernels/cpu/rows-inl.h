// Rows to floats, the canonical dot product and the exponential, for the kernels of this folder.
//
// Included once per instruction set by Highway. Every function gives the same bits on all of them.

#if defined(WINNOW_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_ROWS_INL_H_
#undef WINNOW_KERNELS_CPU_ROWS_INL_H_
#else
#define WINNOW_KERNELS_CPU_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "cache/rows.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most 16 lanes: the chains of the canonical dot product are laid out for 4, 8 or 16.
using FloatTag = hn::CappedTag<float, 16>;
using IntTag = hn::RebindToSigned<FloatTag>;
using Floats = hn::Vec<FloatTag>;
inline constexpr size_t kLanes = HWY_MIN(16, HWY_LANES(float));

inline constexpr size_t kChains = 32;  // of the canonical dot product

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

HWY_INLINE size_t padded_dim(int head_dim) {
  return (static_cast<size_t>(head_dim) + kChains - 1) / kChains * kChains;
}

// One vector of a row of any type, as floats.
HWY_INLINE Floats load_floats(FloatTag d, const float* from) {
  return hn::LoadU(d, from);
}

template <class Half>
HWY_INLINE Floats load_floats(FloatTag d, const Half* from) {
  return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Half, FloatTag>(), from));
}

template <class Half>
HWY_INLINE void load_halves(const Half* HWY_RESTRICT from, size_t n, float* HWY_RESTRICT to) {
  const FloatTag d;
  const hn::Rebind<Half, FloatTag> dh;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(load_floats(d, from + i), d, to + i);
  }
  if (i < n) {
    HWY_ALIGN Half rest[kLanes] = {};
    std::memcpy(rest, from + i, (n - i) * sizeof(Half));
    HWY_ALIGN float wide[kLanes];
    hn::Store(hn::PromoteTo(d, hn::Load(dh, rest)), d, wide);
    std::memcpy(to + i, wide, (n - i) * sizeof(float));
  }
}

// rows [n_rows, head_dim] of `type` -> to [n_rows, padded_dim], the padding zero.
HWY_INLINE void load_rows(cache::RowType type, const std::byte* rows, int n_rows, int head_dim,
                          float* HWY_RESTRICT to) {
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t stride = padded_dim(head_dim);
  for (size_t row = 0; row < static_cast<size_t>(n_rows); ++row) {
    float* const out = to + row * stride;
    switch (type) {
      case cache::RowType::kF32:
        std::memcpy(out, rows + row * dim * sizeof(float), dim * sizeof(float));
        break;
      case cache::RowType::kF16:
        load_halves(reinterpret_cast<const hwy::float16_t*>(rows) + row * dim, dim, out);
        break;
      case cache::RowType::kBf16:
        load_halves(reinterpret_cast<const hwy::bfloat16_t*>(rows) + row * dim, dim, out);
        break;
    }
    if (stride != dim) {
      std::memset(out + dim, 0, (stride - dim) * sizeof(float));
    }
  }
}

// The canonical dot product. Chain j of 32 is the chain of fused multiply-adds over the elements d = j (mod 32), in
// ascending d, from +0. Then q_j = (p_j + p_j+8) + (p_j+16 + p_j+24) for j < 8, and
// ((q0 + q1) + (q2 + q3)) + ((q4 + q5) + (q6 + q7)).
//
// Eighths are the eight q_j. This folds the chains of one row, or of two where a vector has room for both:
// p [rows, parts], part i holding chains i * kLanes …; eighths [rows, 8].
template <size_t kRows, size_t kParts>
HWY_INLINE void fold_to_eighths(const Floats (&p)[kRows][kParts], float* HWY_RESTRICT eighths) {
  const FloatTag d;
  if constexpr (kLanes == 16) {
    static_assert(kRows == 2 && kParts == 2);
    const Floats first = hn::Add(hn::ConcatLowerLower(d, p[1][0], p[0][0]),
                                 hn::ConcatUpperUpper(d, p[1][0], p[0][0]));
    const Floats second = hn::Add(hn::ConcatLowerLower(d, p[1][1], p[0][1]),
                                  hn::ConcatUpperUpper(d, p[1][1], p[0][1]));
    hn::StoreU(hn::Add(first, second), d, eighths);
  } else if constexpr (kLanes == 8) {
    static_assert(kRows == 1 && kParts == 4);
    hn::StoreU(hn::Add(hn::Add(p[0][0], p[0][1]), hn::Add(p[0][2], p[0][3])), d, eighths);
  } else {
    static_assert(kLanes == 4 && kRows == 1 && kParts == 8);
    hn::StoreU(hn::Add(hn::Add(p[0][0], p[0][2]), hn::Add(p[0][4], p[0][6])), d, eighths);
    hn::StoreU(hn::Add(hn::Add(p[0][1], p[0][3]), hn::Add(p[0][5], p[0][7])), d, eighths + 4);
  }
}

HWY_INLINE float sum_eighths(const float* q) {
  return ((q[0] + q[1]) + (q[2] + q[3])) + ((q[4] + q[5]) + (q[6] + q[7]));
}

// The 32 chains of one row, folded in that order. A sum over a row that is no dot product is canonical in the same way.
HWY_INLINE float sum_chains(const float* chains) {
  const hn::CappedTag<float, 8> d;
  HWY_ALIGN float eighths[8];
  for (size_t j = 0; j < 8; j += hn::Lanes(d)) {
    const auto q = [&](size_t i) HWY_ATTR { return hn::LoadU(d, chains + i + j); };
    hn::Store(hn::Add(hn::Add(q(0), q(8)), hn::Add(q(16), q(24))), d, eighths + j);
  }
  return sum_eighths(eighths);
}

// The dot products of max(kLanes, 8) rows, times `scale`: eighths [rows, 8] -> sums [rows].
HWY_INLINE void sum_eighths_of_rows(const float* HWY_RESTRICT eighths, float scale,
                                    float* HWY_RESTRICT sums) {
  if constexpr (kLanes >= 8) {
    const FloatTag d;
    const auto pairs = [&d](Floats low, Floats high) HWY_ATTR {
      return hn::Add(hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low));
    };
    const auto load = [&](size_t i) HWY_ATTR { return hn::Load(d, eighths + i * kLanes); };
    const Floats first = pairs(pairs(load(0), load(1)), pairs(load(2), load(3)));
    const Floats second = pairs(pairs(load(4), load(5)), pairs(load(6), load(7)));
    hn::StoreU(hn::Mul(pairs(first, second), hn::Set(d, scale)), d, sums);
  } else {
    for (size_t row = 0; row < 8; ++row) {
      sums[row] = sum_eighths(eighths + row * 8) * scale;
    }
  }
}

// Below this a weight counts as zero; the exponential stays clear of subnormal numbers.
inline constexpr float kLowestExponent = -87.0F;

// exp(x) for x <= 0, exactly 0 below kLowestExponent. Range reduction to |r| <= ln(2)/2 and a polynomial of degree 7
// (coefficients of the Cephes library's expf); relative error below 2e-7. NaN stays NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_nonpositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto is_zero = hn::Lt(x, hn::Set(d, kLowestExponent));
  const V clamped = hn::IfThenElse(is_zero, hn::Zero(d), x);
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504088896341F)));
  V r = hn::MulAdd(n, hn::Set(d, -0.693359375F), clamped);
  r = hn::MulAdd(n, hn::Set(d, 2.12194440e-4F), r);
  V p = hn::Set(d, 1.9875691500e-4F);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3F));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2F));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1F));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1F));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0F));
  const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
  const V y = hn::Mul(p, hn::BitCast(d, exponent));
  return hn::IfThenElse(is_zero, hn::Zero(d), hn::IfThenElse(hn::IsNaN(x), x, y));
}

HWY_INLINE float exp_nonpositive(float x) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(exp_nonpositive(d, hn::Set(d, x)));
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif  // toggle
