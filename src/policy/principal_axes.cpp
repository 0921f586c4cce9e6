#include "policy/principal_axes.h"

#include <Eigen/Eigenvalues>
#include <Eigen/SVD>

#include "base/error.h"

namespace winnow::policy {
namespace {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

Eigen::Map<const Matrix> mapped(std::span<const double> elements, size_t n) {
  return {elements.data(), static_cast<Eigen::Index>(elements.size() / n),
          static_cast<Eigen::Index>(n)};
}

}  // namespace

PrincipalAxes principal_axes(std::span<const double> matrix, size_t n) {
  WINNOW_CHECK(n > 0 && matrix.size() == n * n);
  const Eigen::SelfAdjointEigenSolver<Matrix> solver(mapped(matrix, n));
  WINNOW_CHECK(solver.info() == Eigen::Success);
  PrincipalAxes found{.values = std::vector<double>(n), .axes = std::vector<double>(n * n)};
  for (size_t i = 0; i < n; ++i) {
    const auto column = static_cast<Eigen::Index>(n - 1 - i);  // they come in ascending order
    found.values[i] = solver.eigenvalues()(column);
    for (size_t c = 0; c < n; ++c) {
      found.axes[i * n + c] = solver.eigenvectors()(static_cast<Eigen::Index>(c), column);
    }
  }
  return found;
}

PrincipalAxes singular_axes(std::span<const double> rows, size_t n) {
  WINNOW_CHECK(n > 0 && !rows.empty() && rows.size() % n == 0);
  const Eigen::Map<const Matrix> matrix = mapped(rows, n);
  const Eigen::BDCSVD<Matrix> solver(matrix, Eigen::ComputeThinU | Eigen::ComputeThinV);
  PrincipalAxes found{.values = std::vector<double>(n), .axes = std::vector<double>(n * n)};
  for (Eigen::Index i = 0; i < solver.singularValues().size(); ++i) {
    const double value = solver.singularValues()(i);
    const auto at = static_cast<size_t>(i);
    found.values[at] = value * value / static_cast<double>(matrix.rows());
    for (size_t c = 0; c < n; ++c) {
      found.axes[at * n + c] = solver.matrixV()(static_cast<Eigen::Index>(c), i);
    }
  }
  return found;
}

}  // namespace winnow::policy
