// The Gram matrix of some rows and its Cholesky factor: for scores that say how far a row stands out among the others.
#pragma once

#include <cstddef>
#include <span>

#include "base/scratch.h"

namespace winnow::policy {

// matrix [dim, dim] = ridge · I + Σ_i x_i x_iᵀ, of rows x [n, dim]; summed in double, row after row.
void gram_matrix(std::span<const float> x, size_t dim, double ridge, Scratch& scratch,
                 std::span<double> matrix);

// In place: the lower triangle becomes L of L Lᵀ = matrix, what is above it stays. False where the matrix is not positive
// definite to the last digit, or has elements that are no number.
bool factorize(std::span<double> matrix, size_t dim);

// norms[i] = x_iᵀ (L Lᵀ)⁻¹ x_i, as the squared norm of L⁻¹ x_i, which is never negative.
void whitened_norms(std::span<const double> lower, size_t dim, std::span<const float> x,
                    Scratch& scratch, std::span<double> norms);

}  // namespace winnow::policy
