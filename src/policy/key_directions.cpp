#include "policy/key_directions.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/scratch.h"
#include "kernels/row_kernels.h"
#include "policy/principal_axes.h"

namespace winnow::policy {
namespace {

// The rows as doubles [n_rows, head_dim].
std::vector<double> keys_of(const cache::HeadRows& rows, int n_rows) {
  const auto dim = static_cast<size_t>(rows.head_dim);
  std::vector<double> keys(static_cast<size_t>(n_rows) * dim);
  Scratch scratch;
  std::vector<float> row(dim);
  const std::vector<float> one{1.0F};
  for (int slot = 0; slot < n_rows; ++slot) {
    // Once itself: what converts any row type.
    kernels::weighted_sum(kernels::keys_of(rows), {&slot, 1}, one, row, scratch);
    std::ranges::copy(row, keys.begin() + static_cast<std::ptrdiff_t>(slot * rows.head_dim));
  }
  return keys;
}

// The first axis of the centred rows.
std::vector<float> spread_direction(std::vector<double> rows, size_t dim) {
  const size_t n = rows.size() / dim;
  std::vector<double> mean(dim);
  double square = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    mean[i % dim] += rows[i] / static_cast<double>(n);
    square += rows[i] * rows[i];
  }
  std::vector<double> covariance(dim * dim);
  for (size_t i = 0; i < n; ++i) {
    for (size_t a = 0; a < dim; ++a) {
      const double x = rows[i * dim + a] - mean[a];
      for (size_t b = 0; b < dim; ++b) {
        covariance[a * dim + b] += x * (rows[i * dim + b] - mean[b]);
      }
    }
  }
  const bool is_finite =
      std::ranges::all_of(covariance, [](double each) { return std::isfinite(each); });
  double spread = 0;
  for (size_t a = 0; a < dim; ++a) {
    spread += covariance[a * dim + a];
  }
  constexpr double kRounding = 1e-20;  // of the mean; keys that differ in one bit differ by more
  if (!is_finite || spread <= kRounding * square) {
    return std::vector<float>(dim);
  }
  const PrincipalAxes axes = principal_axes(covariance, dim);
  const std::span<const double> axis = axes.axis(0);
  const double largest =
      *std::ranges::max_element(axis, {}, [](double each) { return std::abs(each); });
  std::vector<float> direction(dim);
  for (size_t c = 0; c < dim; ++c) {
    direction[c] = static_cast<float>(largest < 0 ? -axis[c] : axis[c]);
  }
  return direction;
}

}  // namespace

KeyDirections::KeyDirections(const Shape& shape)
    : shape_(shape),
      is_frozen_(is_empty() ? 0 : static_cast<size_t>(shape.n_layers)),
      directions_(bytes(shape) / sizeof(float)) {}

size_t KeyDirections::bytes(const Shape& shape) {
  return shape.sample.n_keys == 0
             ? 0
             : static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads) *
                   static_cast<size_t>(shape.head_dim) * sizeof(float);
}

std::span<const float> KeyDirections::direction(int layer, int kv_head) const {
  WINNOW_CHECK(is_frozen(layer));
  const auto dim = static_cast<size_t>(shape_.head_dim);
  const size_t head = static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
                      static_cast<size_t>(kv_head);
  return std::span(directions_).subspan(head * dim, dim);
}

void KeyDirections::freeze(int layer, std::span<const cache::HeadRows> heads) {
  const KeySample& sample = shape_.sample;
  if (is_empty() || is_frozen(layer) ||
      std::ranges::any_of(heads,
                          [&](const cache::HeadRows& rows) { return rows.n < sample.n_keys; })) {
    return;
  }
  std::vector<float> directions;
  for (const cache::HeadRows& rows : heads) {
    const int n = sample.takes_block ? rows.n : sample.n_keys;
    const std::vector<float> direction =
        spread_direction(keys_of(rows, n), static_cast<size_t>(rows.head_dim));
    directions.insert(directions.end(), direction.begin(), direction.end());
  }
  restore(layer, directions);
}

void KeyDirections::clear() {
  std::fill(is_frozen_.begin(), is_frozen_.end(), false);
}

void KeyDirections::restore(int layer, std::span<const float> directions) {
  WINNOW_CHECK(directions.size() == directions_.size() / is_frozen_.size());
  std::ranges::copy(
      directions, directions_.begin() +
                      static_cast<std::ptrdiff_t>(static_cast<size_t>(layer) * directions.size()));
  is_frozen_[static_cast<size_t>(layer)] = true;
}

}  // namespace winnow::policy
