// Linear equations by elimination, for tests of what is solved otherwise.
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

namespace winnow::policy {

// The solution x of matrix x = right, matrix [n, n] of full rank.
inline std::vector<double> plain_solve(std::vector<double> matrix, std::vector<double> right) {
  const size_t n = right.size();
  for (size_t column = 0; column < n; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < n; ++row) {
      if (std::abs(matrix[row * n + column]) > std::abs(matrix[pivot * n + column])) {
        pivot = row;
      }
    }
    for (size_t i = 0; i < n; ++i) {
      std::swap(matrix[pivot * n + i], matrix[column * n + i]);
    }
    std::swap(right[pivot], right[column]);
    for (size_t row = column + 1; row < n; ++row) {
      const double factor = matrix[row * n + column] / matrix[column * n + column];
      for (size_t i = column; i < n; ++i) {
        matrix[row * n + i] -= factor * matrix[column * n + i];
      }
      right[row] -= factor * right[column];
    }
  }
  for (size_t row = n; row-- > 0;) {
    for (size_t i = row + 1; i < n; ++i) {
      right[row] -= matrix[row * n + i] * right[i];
    }
    right[row] /= matrix[row * n + row];
  }
  return right;
}

}  // namespace winnow::policy
