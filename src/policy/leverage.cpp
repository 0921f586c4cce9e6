#include "policy/leverage.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "kernels/key_turns.h"
#include "kernels/row_kernels.h"
#include "policy/gram.h"

namespace winnow::policy {
namespace {

// A number of mean 0 and variance 1: of 64 fair bits, how many are set, as far from the mean in standard deviations. Near to
// normal, and the same on every machine.
float draw(uint64_t hash) {
  return static_cast<float>(std::popcount(hash) - 32) / 4.0F;
}

// The keys in `slots` as they were before rotation: rows [n_cached, head_dim], of which only these mean anything.
kernels::RowVectors unturned_keys(const LayerView& layer, int kv_head, std::span<const int> slots,
                                  Scratch& scratch) {
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  WINNOW_CHECK(layer.turns != nullptr);
  const auto n = static_cast<size_t>(rows.n);
  const int32_t* const rotations = rows.rotations == nullptr ? rows.positions : rows.rotations;
  const std::span<int32_t> lags = scratch.take_filled(n, int32_t{0});
  for (const int slot : slots) {
    lags[static_cast<size_t>(slot)] = rotations[slot];
  }
  const std::span<float> keys = scratch.take<float>(n * static_cast<size_t>(rows.head_dim));
  kernels::turned_keys(rows, {.table = layer.turns, .lags = lags.data()}, scratch, keys);
  return {.elements = std::as_bytes(keys).data(),
          .type = cache::RowType::kF32,
          .head_dim = rows.head_dim};
}

// y [slots, n_directions], y_c = key · direction c / sqrt(n_directions).
void project(const kernels::RowVectors& keys, std::span<const int> slots, uint64_t hash,
             Scratch& scratch, size_t n_directions, std::span<float> y) {
  const Scratch::Frame frame(scratch);
  const std::span<float> direction = scratch.take<float>(static_cast<size_t>(keys.head_dim));
  const std::span<float> dots = scratch.take<float>(slots.size());
  const float length = std::sqrt(static_cast<float>(n_directions));
  for (size_t c = 0; c < n_directions; ++c) {
    const uint64_t of_direction = hash_with(hash, static_cast<int>(c));
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = draw(hash_with(of_direction, static_cast<int>(i))) / length;
    }
    kernels::row_dots(keys, slots, direction, dots, scratch);
    for (size_t i = 0; i < slots.size(); ++i) {
      y[i * n_directions + c] = dots[i];
    }
  }
}

// Takes the mean over rows y [n, dim] from each.
void centre(std::span<float> y, size_t dim) {
  const size_t n = y.size() / dim;
  for (size_t c = 0; c < dim; ++c) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += static_cast<double>(y[i * dim + c]);
    }
    const auto mean = static_cast<float>(sum / static_cast<double>(n));
    for (size_t i = 0; i < n; ++i) {
      y[i * dim + c] -= mean;
    }
  }
}

// The Cholesky factor of YᵀY + εI, for the least ε that has one; whether there is such.
bool factorize_gram(std::span<const float> y, size_t dim, Scratch& scratch,
                    std::span<double> lower) {
  constexpr int kTries = 5;
  double ridge = 1e-2;
  for (int i = 0; i < kTries; ++i, ridge *= 10) {
    gram_matrix(y, dim, ridge, scratch, lower);
    if (factorize(lower, dim)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void leverage_scores(const LayerView& layer, int kv_head, const Sketch& sketch,
                     std::span<const int> slots, Scratch& scratch, std::span<float> worth) {
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(sketch.n_directions);
  const uint64_t hash = hash_with(splitmix64(static_cast<uint32_t>(sketch.seed)), layer.layer);
  const std::span<float> y = scratch.take<float>(slots.size() * dim);
  project(unturned_keys(layer, kv_head, slots, scratch), slots, hash, scratch, dim, y);

  std::ranges::fill(worth, std::numeric_limits<float>::quiet_NaN());
  const std::span<size_t> finite = scratch.take<size_t>(slots.size());
  size_t n = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    const std::span<const float> row = y.subspan(i * dim, dim);
    if (std::ranges::all_of(row, [](float each) { return std::isfinite(each); })) {
      std::ranges::copy(row, y.begin() + static_cast<std::ptrdiff_t>(n * dim));
      finite[n++] = i;
    }
  }
  const std::span<float> of_finite = y.first(n * dim);
  if (n == 0) {
    return;
  }
  centre(of_finite, dim);
  const std::span<double> lower = scratch.take<double>(dim * dim);
  const std::span<double> norms = scratch.take<double>(n);
  if (!factorize_gram(of_finite, dim, scratch, lower)) {
    return;
  }
  whitened_norms(lower, dim, of_finite, scratch, norms);
  for (size_t i = 0; i < n; ++i) {
    worth[finite[i]] = static_cast<float>(norms[i]);
  }
}

}  // namespace winnow::policy
