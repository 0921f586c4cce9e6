#include "oracle/attention_oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace winnow::oracle {
namespace {

// Sign, exponent and mantissa of a half-precision number, one after the other.
double half_to_double(uint16_t bits) {
  const int exponent = bits >> 10 & 0x1f;
  const int mantissa = bits & 0x3ff;
  double value = 0;
  if (exponent == 0x1f) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else {
    value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

}  // namespace

double row_element(const std::byte* rows, cache::RowType type, size_t index) {
  if (type == cache::RowType::kF32) {
    float value = 0;
    std::memcpy(&value, rows + index * sizeof(float), sizeof(float));
    return static_cast<double>(value);
  }
  uint16_t bits = 0;
  std::memcpy(&bits, rows + index * sizeof(uint16_t), sizeof(uint16_t));
  if (type == cache::RowType::kF16) {
    return half_to_double(bits);
  }
  return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
}

std::vector<double> softmax_weights(const cache::HeadRows& rows, const float* q, int pos,
                                    double scale, int swa_window) {
  const auto dim = static_cast<size_t>(rows.head_dim);
  constexpr double kUnseen = -std::numeric_limits<double>::infinity();
  std::vector<double> weights(static_cast<size_t>(rows.n), kUnseen);
  double highest = kUnseen;
  for (int slot = 0; slot < rows.n; ++slot) {
    const bool is_behind = swa_window > 0 && pos - rows.positions[slot] >= swa_window;
    if (rows.positions[slot] > pos || is_behind ||
        (rows.hidden != nullptr && rows.hidden[slot] != 0)) {
      continue;
    }
    const auto at = static_cast<size_t>(slot);
    double score = 0;
    for (size_t i = 0; i < dim; ++i) {
      score += static_cast<double>(q[i]) * row_element(rows.keys, rows.key_type, at * dim + i);
    }
    weights[at] = score * scale;
    highest = std::max(highest, weights[at]);
  }
  double sum = 0;
  for (double& weight : weights) {
    weight = weight == kUnseen ? 0.0 : std::exp(weight - highest);
    sum += weight;
  }
  for (double& weight : weights) {
    weight = sum == 0 ? 0.0 : weight / sum;
  }
  return weights;
}

std::vector<double> attention(const cache::HeadRows& rows, const float* q, int pos, double scale,
                              int swa_window) {
  const std::vector<double> weights = softmax_weights(rows, q, pos, scale, swa_window);
  const auto dim = static_cast<size_t>(rows.head_dim);
  std::vector<double> out(dim, 0.0);
  for (size_t slot = 0; slot < weights.size(); ++slot) {
    for (size_t i = 0; weights[slot] != 0 && i < dim; ++i) {
      out[i] += weights[slot] * row_element(rows.values, rows.value_type, slot * dim + i);
    }
  }
  return out;
}

}  // namespace winnow::oracle
