// The rows of some slots as kernels read them: where they lie, or as padded floats where a row does not end with a chain of the
// canonical sum.
//
// Included once per instruction set by Highway.

#if defined(WINNOW_KERNELS_CPU_ROW_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_ROW_VECTORS_INL_H_
#undef WINNOW_KERNELS_CPU_ROW_VECTORS_INL_H_
#else
#define WINNOW_KERNELS_CPU_ROW_VECTORS_INL_H_
#endif

#include <algorithm>
#include <span>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/row_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// The vector with zeros behind it: [padded_dim].
inline std::span<const float> padded(std::span<const float> vector, Scratch& scratch) {
  const std::span<float> result =
      scratch.take_filled(padded_dim(static_cast<int>(vector.size())), 0.0F);
  std::copy(vector.begin(), vector.end(), result.begin());
  return result;
}

// Rows of some slots as floats, each a column: element a of row i to columns[a * stride + i]. row [padded_dim] is overwritten.
inline void load_columns(const RowVectors& rows, std::span<const int> slots, size_t stride,
                         float* HWY_RESTRICT row, float* HWY_RESTRICT columns) {
  const auto dim = static_cast<size_t>(rows.head_dim);
  const size_t row_bytes = dim * cache::element_bytes(rows.type);
  for (size_t i = 0; i < slots.size(); ++i) {
    load_rows(rows.type, rows.elements + static_cast<size_t>(slots[i]) * row_bytes, 1,
              rows.head_dim, row);
    for (size_t a = 0; a < dim; ++a) {
      columns[a * stride + i] = row[a];
    }
  }
}

template <size_t kBlock, class T, class Body>
HWY_INLINE void for_blocks_in_place(const RowVectors& rows, std::span<const int> slots,
                                    const Body& body) {
  const auto* const elements = reinterpret_cast<const T*>(rows.elements);
  const auto dim = static_cast<size_t>(rows.head_dim);
  for (size_t first = 0; first < slots.size(); first += kBlock) {
    const int* const block = slots.data() + first;
    body(first, HWY_MIN(kBlock, slots.size() - first),
         [&](size_t i) HWY_ATTR { return elements + static_cast<size_t>(block[i]) * dim; });
  }
}

// Calls body(first, n, row_at) for kBlock slots after the other, n of them from `first` on; row_at(i), i < n, points at a row of
// padded_dim elements of any type.
template <size_t kBlock, class Body>
HWY_INLINE void for_blocks(const RowVectors& rows, std::span<const int> slots, Scratch& scratch,
                           const Body& body) {
  const size_t dim = padded_dim(rows.head_dim);
  if (dim != static_cast<size_t>(rows.head_dim)) {
    const size_t row_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.type);
    float* const floats = scratch.take<float>(kBlock * dim).data();
    for (size_t first = 0; first < slots.size(); first += kBlock) {
      const size_t n = HWY_MIN(kBlock, slots.size() - first);
      for (size_t i = 0; i < n; ++i) {
        load_rows(rows.type, rows.elements + static_cast<size_t>(slots[first + i]) * row_bytes, 1,
                  rows.head_dim, floats + i * dim);
      }
      body(first, n, [&](size_t i) HWY_ATTR -> const float* { return floats + i * dim; });
    }
    return;
  }
  switch (rows.type) {
    case cache::RowType::kF32:
      return for_blocks_in_place<kBlock, float>(rows, slots, body);
    case cache::RowType::kF16:
      return for_blocks_in_place<kBlock, hwy::float16_t>(rows, slots, body);
    case cache::RowType::kBf16:
      return for_blocks_in_place<kBlock, hwy::bfloat16_t>(rows, slots, body);
  }
}

// Calls body(vectors, at) for the elements of a row, `vectors` vectors from element `at` on: 8 at a time, and single ones.
template <class Body>
HWY_INLINE void for_columns(size_t dim, const Body& body) {
  size_t at = 0;
  for (; at + 8 * kLanes <= dim; at += 8 * kLanes) {
    body(std::integral_constant<size_t, 8>(), at);
  }
  for (; at + 4 * kLanes <= dim; at += 4 * kLanes) {
    body(std::integral_constant<size_t, 4>(), at);
  }
  for (; at < dim; at += kLanes) {
    body(std::integral_constant<size_t, 1>(), at);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif  // toggle
