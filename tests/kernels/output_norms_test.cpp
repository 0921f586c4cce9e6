#include "kernels/output_norms.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "support/instruction_sets.h"
#include "support/random_rows.h"

namespace winnow::kernels {
namespace {

// The sums of all outputs for the rows [n, head_dim] that slots names: [n_slots].
std::vector<double> norms(const std::vector<float>& rows, const std::vector<int>& slots,
                          const std::vector<float>& matrix, size_t n_outputs, int head_dim) {
  const size_t n_columns = (slots.size() + kNormRows - 1) / kNormRows * kNormRows;
  std::vector<float> columns(n_columns * static_cast<size_t>(head_dim));
  std::vector<double> sums(n_columns, 0.0);
  Scratch scratch;
  rows_to_columns({.elements = std::as_bytes(std::span(rows)).data(),
                   .type = cache::RowType::kF32,
                   .head_dim = head_dim},
                  slots, columns, n_columns, scratch);
  add_output_norms(matrix.data(), n_outputs, matrix.size() / n_outputs, head_dim, columns, sums);
  for (size_t i = slots.size(); i < n_columns; ++i) {
    EXPECT_EQ(sums[i], 0.0);
  }
  sums.resize(slots.size());
  return sums;
}

TEST(OutputNorms, AreThoseOfADoubleSumAndTheSameBitsForAnyCompany) {
  std::mt19937 random(3);
  for (const int head_dim : {1, 20, 64}) {
    constexpr size_t kRows = 100;
    constexpr size_t kOutputs = 16;
    const auto dim = static_cast<size_t>(head_dim);
    const size_t stride = dim + 5;
    const std::vector<float> rows = test::random_floats(random, kRows * dim);
    const std::vector<float> matrix = test::random_floats(random, kOutputs * stride);
    std::vector<int> all(kRows);
    std::iota(all.begin(), all.end(), 0);
    std::vector<double> first;
    test::for_every_instruction_set([&](const std::string& name) {
      const std::vector<double> sums = norms(rows, all, matrix, kOutputs, head_dim);
      for (size_t row = 0; row < kRows; ++row) {
        double expected = 0;
        for (size_t output = 0; output < kOutputs; ++output) {
          double product = 0;
          for (size_t c = 0; c < dim; ++c) {
            product += static_cast<double>(matrix[output * stride + c]) *
                       static_cast<double>(rows[row * dim + c]);
          }
          expected += std::abs(product);
        }
        ASSERT_NEAR(sums[row], expected, 1e-5 * expected) << name << ", head_dim " << head_dim;
        ASSERT_EQ(norms(rows, {static_cast<int>(row)}, matrix, kOutputs, head_dim)[0], sums[row]);
      }
      if (first.empty()) {
        first = sums;
      }
      ASSERT_EQ(sums, first) << name;
    });
  }
}

}  // namespace
}  // namespace winnow::kernels
