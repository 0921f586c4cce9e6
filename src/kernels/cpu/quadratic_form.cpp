// A quadratic form of rows: a lane is a row, so that vectors of any width give the same bits.

#include <algorithm>

#include "base/error.h"
#include "kernels/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quadratic_form.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kVectors = 2;  // of rows at once
constexpr size_t kRowsAtOnce = kVectors * kLanes;
constexpr size_t kElementsAtOnce = 4;  // of the outer sum

// totals += Σ_a x_a (linear_a + Σ_{b >= first} upper_ab x_b) of kElements elements a from `first` on. Where that begins
// before the diagonal, upper is zero. x [dim, kRowsAtOnce].
template <size_t kElements>
HWY_INLINE void add_elements(const float* HWY_RESTRICT x, size_t first, size_t dim,
                             const float* HWY_RESTRICT linear, const float* HWY_RESTRICT upper,
                             Floats (&totals)[kVectors]) {
  const FloatTag d;
  Floats sums[kElements][kVectors];
  for (size_t a = 0; a < kElements; ++a) {
    for (size_t v = 0; v < kVectors; ++v) {
      sums[a][v] = hn::Set(d, linear[first + a]);
    }
  }
  for (size_t b = first; b < dim; ++b) {
    Floats element[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      element[v] = hn::Load(d, x + b * kRowsAtOnce + v * kLanes);
    }
    for (size_t a = 0; a < kElements; ++a) {
      const Floats factor = hn::Set(d, upper[(first + a) * dim + b]);
      for (size_t v = 0; v < kVectors; ++v) {
        sums[a][v] = hn::MulAdd(factor, element[v], sums[a][v]);
      }
    }
  }
  for (size_t a = 0; a < kElements; ++a) {
    for (size_t v = 0; v < kVectors; ++v) {
      const Floats element = hn::Load(d, x + (first + a) * kRowsAtOnce + v * kLanes);
      totals[v] = hn::MulAdd(element, sums[a][v], totals[v]);
    }
  }
}

HWY_INLINE void evaluate(const float* HWY_RESTRICT x, size_t dim, const QuadraticForm& form,
                         float* HWY_RESTRICT values) {
  const FloatTag d;
  Floats totals[kVectors] = {hn::Zero(d), hn::Zero(d)};
  size_t a = 0;
  for (; a + kElementsAtOnce <= dim; a += kElementsAtOnce) {
    add_elements<kElementsAtOnce>(x, a, dim, form.linear.data(), form.upper.data(), totals);
  }
  for (; a < dim; ++a) {
    add_elements<1>(x, a, dim, form.linear.data(), form.upper.data(), totals);
  }
  for (size_t v = 0; v < kVectors; ++v) {
    hn::StoreU(totals[v], d, values + v * kLanes);
  }
}

void quadratic_form_impl(const RowVectors& rows, std::span<const int> slots,
                         const QuadraticForm& form, std::span<float> values, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(rows.head_dim);
  float* const row = scratch.take<float>(padded_dim(rows.head_dim)).data();
  float* const x = scratch.take_filled(dim * kRowsAtOnce, 0.0F).data();
  HWY_ALIGN float of_rows[kRowsAtOnce];
  for (size_t first = 0; first < slots.size(); first += kRowsAtOnce) {
    const size_t n = HWY_MIN(kRowsAtOnce, slots.size() - first);
    load_columns(rows, slots.subspan(first, n), kRowsAtOnce, row, x);
    evaluate(x, dim, form, of_rows);
    std::copy_n(of_rows, n, values.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(quadratic_form_impl);

void quadratic_form(const RowVectors& rows, std::span<const int> slots, const QuadraticForm& form,
                    std::span<float> values, Scratch& scratch) {
  WINNOW_CHECK(std::ssize(form.linear) == rows.head_dim &&
               form.upper.size() == form.linear.size() * form.linear.size() &&
               values.size() == slots.size());
  HWY_DYNAMIC_DISPATCH(quadratic_form_impl)(rows, slots, form, values, scratch);
}

}  // namespace winnow::kernels
#endif
