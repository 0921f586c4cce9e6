#include "eval/query_axes.h"

#include <cmath>
#include <numeric>

namespace winnow::eval {

policy::PrincipalAxes query_axes(const kernels::QueryMoments& moments, int layer, int head) {
  const auto dim = static_cast<size_t>(moments.shape().head_dim);
  std::vector<double> mean(dim);
  std::vector<double> second(dim * dim);
  moments.mean(layer, head, mean);
  moments.covariance(layer, head, second);
  for (size_t i = 0; i < dim; ++i) {
    for (size_t j = 0; j < dim; ++j) {
      second[i * dim + j] += mean[i] * mean[j];
    }
  }
  policy::PrincipalAxes axes = policy::principal_axes(second, dim);
  const std::span<double> first = std::span(axes.axes).first(dim);
  if (std::inner_product(first.begin(), first.end(), mean.begin(), 0.0) < 0) {
    for (double& element : first) {
      element = -element;
    }
  }
  return axes;
}

AxisProjections::AxisProjections(policy::PrincipalAxes axes)
    : axes_(std::move(axes)), sums_(axes_.values.size()), abs_sums_(axes_.values.size()) {}

void AxisProjections::add(std::span<const float> query) {
  for (size_t axis = 0; axis < sums_.size(); ++axis) {
    const std::span<const double> direction = axes_.axis(axis);
    double projection = 0;
    for (size_t d = 0; d < direction.size(); ++d) {
      projection += direction[d] * static_cast<double>(query[d]);
    }
    sums_[axis] += projection;
    abs_sums_[axis] += std::abs(projection);
    square_ += projection * projection;  // the axes are a basis
    if (axis == 0) {
      first_square_ += projection * projection;
      if (n_ % kBlock == 0) {
        blocks_.push_back(0);
      }
      blocks_.back() += projection;
    }
  }
  ++n_;
}

Interval AxisProjections::kappa_interval() const {
  std::vector<double> means(blocks_.begin(), blocks_.begin() + n_ / kBlock);
  for (double& mean : means) {
    mean /= kBlock;
  }
  return bootstrap_interval(means, {.n_resamples = 1000});
}

double AxisProjections::first_over_others(std::span<const double> sums) {
  double others = 0;
  for (const double sum : sums.subspan(1)) {
    others += std::abs(sum) / static_cast<double>(sums.size() - 1);
  }
  return others > 0 ? std::abs(sums[0]) / others : 0;
}

}  // namespace winnow::eval
