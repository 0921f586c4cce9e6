// Softmax weights added up in fixed point, so that a sum is the same in any order and on any instruction set.
//
// Included once per instruction set by Highway.

#if defined(WINNOW_KERNELS_CPU_COLUMN_MASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_COLUMN_MASS_INL_H_
#undef WINNOW_KERNELS_CPU_COLUMN_MASS_INL_H_
#else
#define WINNOW_KERNELS_CPU_COLUMN_MASS_INL_H_
#endif

#include <bit>
#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Added to a number below 2^51, this leaves its nearest integer in the low bits.
inline constexpr double kRounder = 0x1.8p52;

using DoubleTag = hn::Repartition<double, FloatTag>;
using WholeTag = hn::RebindToSigned<DoubleTag>;

HWY_INLINE hn::Vec<DoubleTag> lower_doubles(Floats x) {
  return hn::PromoteTo(DoubleTag(), hn::LowerHalf(hn::Half<FloatTag>(), x));
}

HWY_INLINE hn::Vec<DoubleTag> upper_doubles(Floats x) {
  return hn::PromoteTo(DoubleTag(), hn::UpperHalf(hn::Half<FloatTag>(), x));
}

// What `n` vectors of rounded numbers have to start from for their sum to be that of the integers.
HWY_INLINE hn::Vec<WholeTag> start_of_sum(uint64_t n) {
  return hn::BitCast(WholeTag(), hn::Set(hn::RebindToUnsigned<DoubleTag>(),
                                         uint64_t{0} - n * std::bit_cast<uint64_t>(kRounder)));
}

// sum + the nearest integers of weights · shares · scale, of both halves of the vectors. A weight that is no number, or
// below zero, counts as nothing.
HWY_INLINE hn::Vec<WholeTag> add_rounded(Floats weights, Floats shares, hn::Vec<DoubleTag> scale,
                                         hn::Vec<WholeTag> sum) {
  const FloatTag d;
  const WholeTag di;
  const Floats product = hn::Mul(weights, shares);
  const Floats share = hn::IfThenElseZero(hn::Ge(product, hn::Zero(d)), product);
  const auto rounder = hn::Set(DoubleTag(), kRounder);
  const auto low = hn::MulAdd(lower_doubles(share), scale, rounder);
  const auto high = hn::MulAdd(upper_doubles(share), scale, rounder);
  return hn::Add(hn::Add(sum, hn::BitCast(di, low)), hn::BitCast(di, high));
}

// mass[row] += Σ over lanes of weights[row][lane] · shares[lane], in units of 1 / scale. weights [n_rows, lanes] with
// kVectors vectors of lanes.
template <size_t kVectors>
HWY_INLINE void add_mass(const float* HWY_RESTRICT weights, size_t n_rows,
                         const float* HWY_RESTRICT shares, double scale,
                         int64_t* HWY_RESTRICT mass) {
  const FloatTag d;
  const auto unit = hn::Set(DoubleTag(), scale);
  const auto start = start_of_sum(2 * kVectors);
  Floats share[kVectors];
  for (size_t v = 0; v < kVectors; ++v) {
    share[v] = hn::LoadU(d, shares + v * kLanes);
  }
  for (size_t row = 0; row < n_rows; ++row) {
    const float* const at = weights + row * kVectors * kLanes;
    auto sum = start;
    for (size_t v = 0; v < kVectors; ++v) {
      sum = add_rounded(hn::LoadU(d, at + v * kLanes), share[v], unit, sum);
    }
    mass[row] += hn::GetLane(hn::SumOfLanes(WholeTag(), sum));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif  // toggle
