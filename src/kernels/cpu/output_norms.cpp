// L1 norms of products with a matrix: one lane for each row, so that rows do not touch each other.

#include "kernels/output_norms.h"

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/output_norms.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

void rows_to_columns_impl(const RowVectors& rows, std::span<const int> slots,
                          std::span<float> columns, size_t n_columns, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(rows.head_dim);
  const size_t row_bytes = dim * cache::element_bytes(rows.type);
  float* const row = scratch.take<float>(padded_dim(rows.head_dim)).data();
  for (size_t i = 0; i < n_columns; ++i) {
    if (i < slots.size()) {
      load_rows(rows.type, rows.elements + static_cast<size_t>(slots[i]) * row_bytes, 1,
                rows.head_dim, row);
    }
    for (size_t c = 0; c < dim; ++c) {
      columns[c * n_columns + i] = i < slots.size() ? row[c] : 0.0F;
    }
  }
}

// For kVectors vectors of columns.
template <size_t kVectors>
HWY_INLINE void add_norms_of_group(const float* HWY_RESTRICT matrix, size_t n_outputs,
                                   size_t stride, size_t dim, const float* HWY_RESTRICT columns,
                                   size_t n_columns, double* HWY_RESTRICT sums) {
  const FloatTag d;
  Floats norms[kVectors];
  for (Floats& norm : norms) {
    norm = hn::Zero(d);
  }
  for (size_t i = 0; i < n_outputs; i += kNormOutputs) {
    Floats products[kNormOutputs][kVectors];
    for (auto& of_output : products) {
      for (Floats& product : of_output) {
        product = hn::Zero(d);
      }
    }
    for (size_t c = 0; c < dim; ++c) {
      Floats x[kVectors];
      for (size_t v = 0; v < kVectors; ++v) {
        x[v] = hn::LoadU(d, columns + c * n_columns + v * kLanes);
      }
      for (size_t output = 0; output < kNormOutputs; ++output) {
        const Floats weight = hn::Set(d, matrix[(i + output) * stride + c]);
        for (size_t v = 0; v < kVectors; ++v) {
          products[output][v] = hn::MulAdd(weight, x[v], products[output][v]);
        }
      }
    }
    for (const auto& of_output : products) {
      for (size_t v = 0; v < kVectors; ++v) {
        norms[v] = hn::Add(norms[v], hn::Abs(of_output[v]));
      }
    }
  }
  HWY_ALIGN float lanes[kVectors * kLanes];
  for (size_t v = 0; v < kVectors; ++v) {
    hn::Store(norms[v], d, lanes + v * kLanes);
  }
  for (size_t lane = 0; lane < kVectors * kLanes; ++lane) {
    sums[lane] += static_cast<double>(lanes[lane]);
  }
}

void add_output_norms_impl(const float* matrix, size_t n_outputs, size_t stride, int head_dim,
                           std::span<const float> columns, std::span<double> sums) {
  static_assert(kNormRows % kLanes == 0);
  const auto dim = static_cast<size_t>(head_dim);
  const size_t n_columns = sums.size();
  size_t first = 0;
  for (; first + 3 * kLanes <= n_columns; first += 3 * kLanes) {
    add_norms_of_group<3>(matrix, n_outputs, stride, dim, columns.data() + first, n_columns,
                          sums.data() + first);
  }
  for (; first < n_columns; first += kLanes) {
    add_norms_of_group<1>(matrix, n_outputs, stride, dim, columns.data() + first, n_columns,
                          sums.data() + first);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(rows_to_columns_impl);

void rows_to_columns(const RowVectors& rows, std::span<const int> slots, std::span<float> columns,
                     size_t n_columns, Scratch& scratch) {
  WINNOW_CHECK(n_columns % kNormRows == 0 && slots.size() <= n_columns &&
               columns.size() == n_columns * static_cast<size_t>(rows.head_dim));
  HWY_DYNAMIC_DISPATCH(rows_to_columns_impl)(rows, slots, columns, n_columns, scratch);
}

HWY_EXPORT(add_output_norms_impl);

void add_output_norms(const float* matrix, size_t n_outputs, size_t stride, int head_dim,
                      std::span<const float> columns, std::span<double> sums) {
  WINNOW_CHECK(sums.size() % kNormRows == 0 && n_outputs % kNormOutputs == 0 &&
               columns.size() == sums.size() * static_cast<size_t>(head_dim));
  HWY_DYNAMIC_DISPATCH(add_output_norms_impl)(matrix, n_outputs, stride, head_dim, columns, sums);
}

}  // namespace winnow::kernels
#endif  // HWY_ONCE
