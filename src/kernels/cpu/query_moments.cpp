// Sums of products of queries: tiles of the matrix stay in registers while a block of tokens passes.

#include "kernels/query_moments.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/query_moments.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DoubleTag = hn::CappedTag<double, 8>;
using Doubles = hn::Vec<DoubleTag>;
constexpr size_t kDoubleLanes = HWY_MIN(8, HWY_LANES(double));
constexpr size_t kTileVectors = kMomentStrip / kDoubleLanes;
constexpr size_t kTileRows = 8 / kTileVectors;  // 8 accumulators

// products [kTileRows, kMomentStrip], `stride` apart, += rows × columns of each token; x [n_tokens, dim].
HWY_INLINE void add_tile(const double* HWY_RESTRICT rows, const double* HWY_RESTRICT columns,
                         size_t n_tokens, size_t dim, double* HWY_RESTRICT products,
                         size_t stride) {
  const DoubleTag d;
  Doubles sums[kTileRows][kTileVectors];
  for (size_t i = 0; i < kTileRows; ++i) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      sums[i][v] = hn::LoadU(d, products + i * stride + v * kDoubleLanes);
    }
  }
  for (size_t token = 0; token < n_tokens; ++token) {
    Doubles column[kTileVectors];
    for (size_t v = 0; v < kTileVectors; ++v) {
      column[v] = hn::LoadU(d, columns + token * dim + v * kDoubleLanes);
    }
    for (size_t i = 0; i < kTileRows; ++i) {
      const Doubles row = hn::Set(d, rows[token * dim + i]);
      for (size_t v = 0; v < kTileVectors; ++v) {
        sums[i][v] = hn::MulAdd(row, column[v], sums[i][v]);
      }
    }
  }
  for (size_t i = 0; i < kTileRows; ++i) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      hn::StoreU(sums[i][v], d, products + i * stride + v * kDoubleLanes);
    }
  }
}

void add_moments_impl(const double* x, size_t n_tokens, size_t dim, double* sum, double* products) {
  const DoubleTag d;
  for (size_t at = 0; at < dim; at += kDoubleLanes) {
    Doubles total = hn::LoadU(d, sum + at);
    for (size_t token = 0; token < n_tokens; ++token) {
      total = hn::Add(total, hn::LoadU(d, x + token * dim + at));
    }
    hn::StoreU(total, d, sum + at);
  }
  for (size_t strip = 0; strip < dim; strip += kMomentStrip) {
    const size_t stride = dim - strip;
    for (size_t row = 0; row < kMomentStrip; row += kTileRows) {
      for (size_t column = 0; column < stride; column += kMomentStrip) {
        add_tile(x + strip + row, x + strip + column, n_tokens, dim,
                 products + row * stride + column, stride);
      }
    }
    products += kMomentStrip * stride;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(add_moments_impl);

void add_moments(const double* x, size_t n_tokens, size_t padded_dim, double* sum,
                 double* products) noexcept {
  HWY_DYNAMIC_DISPATCH(add_moments_impl)(x, n_tokens, padded_dim, sum, products);
}

}  // namespace winnow::kernels
#endif
