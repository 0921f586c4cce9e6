// The axes of symmetric matrices and of rows, as an eigen solver finds them: Eigen, which nobody else has to include.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace winnow::policy {

struct PrincipalAxes {
  std::vector<double> values;  // [n], the greatest first
  std::vector<double> axes;    // [n, n]: axis i of length 1, up to its sign

  std::span<const double> axis(size_t i) const {
    return std::span(axes).subspan(i * values.size(), values.size());
  }
};

// Of a symmetric matrix [n, n] whose elements are finite, so that the solver comes to an end.
PrincipalAxes principal_axes(std::span<const double> matrix, size_t n);

// The right singular vectors of rows [n_rows, n], n_rows >= 1, not centred, by a singular value decomposition; values are
// squared singular values over n_rows. Those beyond n_rows are 0, with axes of zeros.
PrincipalAxes singular_axes(std::span<const double> rows, size_t n);

}  // namespace winnow::policy
