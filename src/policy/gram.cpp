#include "policy/gram.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/query_moments.h"

namespace winnow::policy {

void gram_matrix(std::span<const float> x, size_t dim, double ridge, Scratch& scratch,
                 std::span<double> matrix) {
  constexpr size_t kRowsAtOnce = 64;
  const Scratch::Frame frame(scratch);
  WINNOW_CHECK(x.size() % dim == 0 && matrix.size() == dim * dim);
  const size_t padded = kernels::moment_dim(static_cast<int>(dim));
  const std::span<double> block = scratch.take_filled(kRowsAtOnce * padded, 0.0);
  const std::span<double> sum = scratch.take_filled(padded, 0.0);
  const std::span<double> products = scratch.take_filled(kernels::product_doubles(padded), 0.0);
  const size_t n = x.size() / dim;
  for (size_t first = 0; first < n; first += kRowsAtOnce) {
    const size_t n_rows = std::min(kRowsAtOnce, n - first);
    for (size_t i = 0; i < n_rows; ++i) {
      std::ranges::copy(x.subspan((first + i) * dim, dim),
                        block.begin() + static_cast<std::ptrdiff_t>(i * padded));
    }
    kernels::add_moments(block.data(), n_rows, padded, sum.data(), products.data());
  }
  const double* row = products.data();  // from the first column of its strip on
  for (size_t i = 0; i < dim; ++i) {
    const size_t strip = i / kernels::kMomentStrip * kernels::kMomentStrip;
    for (size_t j = i; j < dim; ++j) {
      const double value = row[j - strip] + (i == j ? ridge : 0.0);
      matrix[i * dim + j] = value;
      matrix[j * dim + i] = value;
    }
    row += padded - strip;
  }
}

bool factorize(std::span<double> matrix, size_t dim) {
  for (size_t i = 0; i < dim; ++i) {
    double* const row = matrix.data() + i * dim;
    for (size_t j = 0; j <= i; ++j) {
      const double* const other = matrix.data() + j * dim;
      double rest = row[j];
      for (size_t k = 0; k < j; ++k) {
        rest -= row[k] * other[k];
      }
      if (j < i) {
        row[j] = rest / other[j];
        continue;
      }
      if (!(rest > 0) || !std::isfinite(rest)) {
        return false;
      }
      row[i] = std::sqrt(rest);
    }
  }
  return true;
}

void whitened_norms(std::span<const double> lower, size_t dim, std::span<const float> x,
                    Scratch& scratch, std::span<double> norms) {
  constexpr size_t kLanes = 8;  // rows at once: a lane's result depends on its row alone
  const Scratch::Frame frame(scratch);
  WINNOW_CHECK(lower.size() == dim * dim && x.size() == norms.size() * dim);
  const std::span<double> solved = scratch.take<double>(dim * kLanes);
  for (size_t first = 0; first < norms.size(); first += kLanes) {
    const size_t n = std::min(kLanes, norms.size() - first);
    double squares[kLanes] = {};
    for (size_t i = 0; i < dim; ++i) {
      double rest[kLanes] = {};
      for (size_t lane = 0; lane < n; ++lane) {
        rest[lane] = static_cast<double>(x[(first + lane) * dim + i]);
      }
      const double* const row = lower.data() + i * dim;
      for (size_t k = 0; k < i; ++k) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
          rest[lane] -= row[k] * solved[k * kLanes + lane];
        }
      }
      for (size_t lane = 0; lane < kLanes; ++lane) {
        const double each = rest[lane] / row[i];
        solved[i * kLanes + lane] = each;
        squares[lane] += each * each;
      }
    }
    std::copy_n(squares, n, norms.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

}  // namespace winnow::policy
