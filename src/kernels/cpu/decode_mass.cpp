// Column mass of a decoded token: what each row's softmax weights come to once all blocks are known.

#include <algorithm>

#include "kernels/attend.h"
#include "kernels/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/decode_mass.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/column_mass-inl.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// mass[row] += weights[row] · share for n rows, in units of 1 / kMassScale.
HWY_INLINE void add_row_mass(const float* HWY_RESTRICT weights, size_t n, float share,
                             int64_t* HWY_RESTRICT mass) {
  const FloatTag d;
  const WholeTag di;
  const auto unit = hn::Set(DoubleTag(), kMassScale);
  const auto start = start_of_sum(1);
  const auto rounded = [&](hn::Vec<DoubleTag> product) HWY_ATTR {
    return hn::Add(start,
                   hn::BitCast(di, hn::MulAdd(product, unit, hn::Set(DoubleTag(), kRounder))));
  };
  for (size_t i = 0; i < n; i += kLanes) {
    HWY_ALIGN int64_t units[kLanes];
    const size_t n_rows = HWY_MIN(kLanes, n - i);
    const Floats weight = hn::MaskedLoad(hn::FirstN(d, n_rows), d, weights + i);
    const Floats product = hn::Mul(weight, hn::Set(d, share));
    const Floats received = hn::IfThenElseZero(hn::Ge(product, hn::Zero(d)), product);
    hn::Store(rounded(lower_doubles(received)), di, units);
    hn::Store(rounded(upper_doubles(received)), di, units + kLanes / 2);
    for (size_t row = 0; row < n_rows; ++row) {
      mass[i + row] += units[row];
    }
  }
}

void add_decode_mass_impl(const cache::HeadRows& rows, const DecodeQuery& query,
                          const float* partials, int64_t* mass) {
  const auto group = static_cast<size_t>(query.gqa_group_size);
  const size_t stride = group * (static_cast<size_t>(rows.head_dim) + 2);
  const int length = block_length(query.pos);
  const int blocks = n_blocks(query.pos);
  for (size_t head = 0; head < group; ++head) {
    float maximum = kMinusInfinity;
    for (int block = 0; block < blocks; ++block) {
      maximum = std::max(maximum, partials[static_cast<size_t>(block) * stride + head]);
    }
    if (maximum == kMinusInfinity) {
      continue;  // nothing is visible
    }
    const auto relative = [&](int block) HWY_ATTR {
      return exp_nonpositive(partials[static_cast<size_t>(block) * stride + head] - maximum);
    };
    float sum = 0.0F;
    for (int block = 0; block < blocks; ++block) {
      const float* const partial = partials + static_cast<size_t>(block) * stride;
      sum += partial[head] == kMinusInfinity ? 0.0F : partial[group + head] * relative(block);
    }
    const int32_t* const end = rows.positions + rows.n;
    const int32_t* first =
        std::lower_bound(rows.positions, end, first_visible(query.pos, query.swa_window));
    for (int block = 0; block < blocks; ++block) {
      const int32_t* const last = std::lower_bound(first, end, (block + 1) * length);
      const auto slot = static_cast<size_t>(first - rows.positions);
      if (sum > 0.0F && first != last) {
        add_row_mass(query.weights + head * query.weights_stride + slot,
                     static_cast<size_t>(last - first), relative(block) / sum, mass + slot);
      }
      first = last;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(add_decode_mass_impl);

void add_decode_mass(const cache::HeadRows& rows, const DecodeQuery& query, const float* partials,
                     int64_t* mass) noexcept {
  HWY_DYNAMIC_DISPATCH(add_decode_mass_impl)(rows, query, partials, mass);
}

}  // namespace winnow::kernels
#endif
