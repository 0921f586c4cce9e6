#include "kernels/query_moments.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace winnow::kernels {
namespace {

constexpr size_t kTokensAtOnce = 32;  // stay in the first cache while products are made of them

bool is_finite(std::span<const float> x) {
  return std::all_of(x.begin(), x.end(), [](float each) { return std::isfinite(each); });
}

}  // namespace

QueryMoments::QueryMoments(const Shape& shape) : shape_(shape), layers_(shape.is_watched.size()) {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    if (shape.is_watched[layer]) {
      layers_[layer].n.resize(static_cast<size_t>(shape.n_heads));
      layers_[layer].sums.resize(static_cast<size_t>(shape.n_heads) * sum_doubles(shape_.head_dim));
    }
  }
}

const double* QueryMoments::sums_of(int layer, int head) const {
  return sums(layer).data() + static_cast<size_t>(head) * sum_doubles(shape_.head_dim);
}

// A block of tokens as doubles, and one of them as floats.
size_t QueryMoments::scratch_floats(int head_dim) {
  return (2 * kTokensAtOnce + 1) * moment_dim(head_dim);
}

void QueryMoments::add(int layer, int head, const HeadQueries& queries, const Rotation& rotation,
                       float* scratch) noexcept {
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t dim = moment_dim(shape_.head_dim);
  double* const block = reinterpret_cast<double*>(scratch);  // [kTokensAtOnce, dim]
  const std::span<float> x(scratch + 2 * kTokensAtOnce * dim, head_dim);
  double* const sum = layers_[static_cast<size_t>(layer)].sums.data() +
                      static_cast<size_t>(head) * sum_doubles(shape_.head_dim);
  size_t n_block = 0;
  const auto add_block = [&] {
    add_moments(block, n_block, dim, sum, sum + dim);
    layers_[static_cast<size_t>(layer)].n[static_cast<size_t>(head)] +=
        static_cast<int64_t>(n_block);
    n_block = 0;
  };
  for (int token = std::max(0, kUncountedQueries - queries.first_pos); token < queries.n_tokens;
       ++token) {
    const auto at = static_cast<size_t>(token);
    std::copy_n(queries.q + at * queries.stride, head_dim, x.begin());
    turn_back(rotation, {queries.turns + at * rotation.n_rot(), rotation.n_rot()}, x);
    if (!is_finite(x)) {
      continue;
    }
    double* const to = block + n_block * dim;
    std::copy(x.begin(), x.end(), to);
    std::fill(to + head_dim, to + dim, 0.0);
    if (++n_block == kTokensAtOnce) {
      add_block();
    }
  }
  add_block();
}

void QueryMoments::mean(int layer, int head, std::span<double> mean) const {
  WINNOW_CHECK(std::ssize(mean) == shape_.head_dim);
  const double* const sum = sums_of(layer, head);
  const auto n =
      static_cast<double>(std::max<int64_t>(counts(layer)[static_cast<size_t>(head)], 1));
  for (size_t i = 0; i < mean.size(); ++i) {
    mean[i] = sum[i] / n;
  }
}

void QueryMoments::covariance(int layer, int head, std::span<double> covariance) const {
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const size_t dim = moment_dim(shape_.head_dim);
  WINNOW_CHECK(covariance.size() == head_dim * head_dim);
  const double* const sum = sums_of(layer, head);
  const double* row = sum + dim;
  const auto n =
      static_cast<double>(std::max<int64_t>(counts(layer)[static_cast<size_t>(head)], 1));
  for (size_t i = 0; i < head_dim; ++i) {
    const size_t first = i / kMomentStrip * kMomentStrip;
    for (size_t j = i; j < head_dim; ++j) {
      const double value = row[j - first] / n - sum[i] / n * (sum[j] / n);
      covariance[i * head_dim + j] = value;
      covariance[j * head_dim + i] = value;
    }
    row += dim - first;
  }
}

size_t QueryMoments::bytes(const Shape& shape) {
  const auto n_watched = std::count(shape.is_watched.begin(), shape.is_watched.end(), true);
  return static_cast<size_t>(n_watched) * static_cast<size_t>(shape.n_heads) *
         (sizeof(int64_t) + sum_doubles(shape.head_dim) * sizeof(double));
}

}  // namespace winnow::kernels
