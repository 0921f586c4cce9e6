// Gram matrices, their factors and whitened norms, against plain elimination.

#include "policy/gram.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <random>

#include "policy/plain_solve.h"
#include "support/random_rows.h"

namespace winnow::policy {
namespace {

TEST(Gram, WhitenedNormsAreThoseOfPlainElimination) {
  std::mt19937 random(1);
  for (const size_t dim : {1U, 2U, 8U, 33U, 48U, 64U}) {
    for (const size_t n : {1U, 7U, 65U, 200U}) {
      const std::vector<float> x = test::random_floats(random, n * dim);
      std::vector<double> matrix(dim * dim);
      Scratch scratch;
      gram_matrix(x, dim, 0.5, scratch, matrix);
      std::vector<double> plain(dim * dim);
      for (size_t i = 0; i < dim; ++i) {
        for (size_t j = 0; j < dim; ++j) {
          plain[i * dim + j] = i == j ? 0.5 : 0.0;
          for (size_t row = 0; row < n; ++row) {
            plain[i * dim + j] +=
                static_cast<double>(x[row * dim + i]) * static_cast<double>(x[row * dim + j]);
          }
          ASSERT_NEAR(matrix[i * dim + j], plain[i * dim + j], 1e-9 * static_cast<double>(n));
        }
      }
      ASSERT_TRUE(factorize(matrix, dim));
      std::vector<double> norms(n);
      whitened_norms(matrix, dim, x, scratch, norms);
      for (size_t row = 0; row < n; ++row) {
        const std::vector<double> of_row(x.begin() + static_cast<std::ptrdiff_t>(row * dim),
                                         x.begin() + static_cast<std::ptrdiff_t>((row + 1) * dim));
        const std::vector<double> solved = plain_solve(plain, of_row);
        ASSERT_NEAR(norms[row],
                    std::inner_product(of_row.begin(), of_row.end(), solved.begin(), 0.0), 1e-9)
            << dim << ", " << n << ", row " << row;
      }
    }
  }
}

TEST(Gram, AMatrixThatIsNotPositiveDefiniteHasNoFactor) {
  std::vector<double> singular{1, 1, 1, 1};
  EXPECT_FALSE(factorize(singular, 2));
  std::vector<double> negative{-1};
  EXPECT_FALSE(factorize(negative, 1));
  std::vector<double> not_a_number{1, 0, 0, std::numeric_limits<double>::quiet_NaN()};
  EXPECT_FALSE(factorize(not_a_number, 2));
}

}  // namespace
}  // namespace winnow::policy
