#include "calibrate/fit.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/name_table.h"
#include "eval/statistics.h"
#include "kernels/parallel.h"
#include "policy/principal_axes.h"

namespace winnow::calibrate {
namespace {

using Vector = std::vector<double>;

constexpr NameTable<Estimator, 2> kEstimators{
    "estimator", {{Estimator::kMoments, "moments"}, {Estimator::kSvd, "svd"}}};
constexpr NameTable<SignRule, 2> kSignRules{
    "sign rule", {{SignRule::kSum, "sum"}, {SignRule::kMajority, "majority"}}};

double dot(std::span<const double> a, std::span<const double> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

double length(std::span<const double> x) {
  return std::sqrt(dot(x, x));
}

// The axis, turned round where its sign is negative.
Vector oriented(std::span<const double> axis, double sign) {
  Vector direction(axis.begin(), axis.end());
  if (sign < 0) {
    std::ranges::transform(direction, direction.begin(), std::negate<>());
  }
  return direction;
}

// What is found of one query head.
struct HeadFit {
  Vector direction;  // [head_dim], of length 1
  std::vector<Vector> half_directions;
  double energy = 0;
  Vector mean_projections;  // [head_dim]
};

class Fitter {
 public:
  Fitter(const QueryStatistics& statistics, const FitOptions& options)
      : statistics_(statistics), options_(options), shape_(statistics.shape().heads) {
    n_blocks_ = statistics.shape().n_blocks;
  }

  HeadFit fit_head(int layer, int head) const {
    Vector second(dim() * dim());
    statistics_.second_moment(layer, head, -1, second);
    const Vector mean = mean_of(layer, head, -1);
    check_spread(layer, head, second, mean);
    const policy::PrincipalAxes axes = policy::principal_axes(second, dim());
    HeadFit fit;
    fit.direction = options_.estimator == Estimator::kSvd
                        ? direction_of_sample(layer, head)
                        : oriented(axes.axis(0), dot(axes.axis(0), mean));
    fit.energy = axes.values[0] / std::accumulate(axes.values.begin(), axes.values.end(), 0.0);
    for (size_t i = 0; i < dim(); ++i) {
      fit.mean_projections.push_back(std::abs(dot(axes.axis(i), mean)));
    }
    for (int half = 0; half < statistics_.n_halves(); ++half) {
      statistics_.second_moment(layer, head, half, second);
      const policy::PrincipalAxes of_half = policy::principal_axes(second, dim());
      fit.half_directions.push_back(
          oriented(of_half.axis(0), dot(of_half.axis(0), mean_of(layer, head, half))));
    }
    return fit;
  }

  // Of a block's queries of a head.
  Vector block_mean(int layer, int head, int block) const {
    Vector mean(dim());
    statistics_.mean(layer, head, block, mean);
    return mean;
  }

  // Low end, estimate and high end of the means of each block's projections on what the other half says. A single block
  // says nothing about itself.
  std::vector<float> kappa(std::span<const Vector> half_directions,
                           std::span<const Vector> block_means) const {
    if (half_directions.size() < 2) {
      const float nan = std::numeric_limits<float>::quiet_NaN();
      return {nan, nan, nan};
    }
    Vector projections;
    for (int block = 0; block < n_blocks_; ++block) {
      const auto other = static_cast<size_t>(1 - statistics_.half_of(block));
      projections.push_back(dot(half_directions[other], block_means[static_cast<size_t>(block)]));
    }
    const eval::Interval interval = eval::bootstrap_interval(projections, {.n_resamples = 2000});
    return {static_cast<float>(interval.low), static_cast<float>(eval::mean(projections)),
            static_cast<float>(interval.high)};
  }

  size_t dim() const { return static_cast<size_t>(shape_.head_dim); }
  int n_blocks() const { return n_blocks_; }
  // The mean of the group's directions, at length 1 unless it is short or that is not wanted; `length` before that.
  Vector group_direction(std::span<const Vector> directions, double& group_length) const {
    Vector mean(dim());
    for (const Vector& direction : directions) {
      for (size_t c = 0; c < dim(); ++c) {
        mean[c] += direction[c] / static_cast<double>(directions.size());
      }
    }
    group_length = length(mean);
    const double scale = group_length < kLeastGroupLength ? 0
                         : options_.is_normalized         ? 1 / group_length
                                                          : 1;
    for (double& each : mean) {
      each *= scale;
    }
    return mean;
  }

 private:
  // Of all queries, or of a half.
  Vector mean_of(int layer, int head, int half) const {
    Vector sum(dim());
    double n = 0;
    for (int block = 0; block < n_blocks_; ++block) {
      if (half < 0 || statistics_.half_of(block) == half) {
        const Vector mean = block_mean(layer, head, block);
        const auto n_here = static_cast<double>(statistics_.n_tokens(block));
        for (size_t c = 0; c < dim(); ++c) {
          sum[c] += n_here * mean[c];
        }
        n += n_here;
      }
    }
    for (double& each : sum) {
      each /= n;
    }
    return sum;
  }

  void check_spread(int layer, int head, const Vector& second, const Vector& mean) const {
    double square = 0;
    for (size_t c = 0; c < dim(); ++c) {
      square += second[c * dim() + c];
    }
    const bool is_zero = square <= 0;
    if (is_zero || square - dot(mean, mean) <= 1e-12 * square) {
      throw Error(ErrorCode::kBadData, "layer " + std::to_string(layer) + ", head " +
                                           std::to_string(head) + ": all queries are " +
                                           (is_zero ? "zero" : "the same") +
                                           "; no filter can be made of those");
    }
  }

  Vector direction_of_sample(int layer, int head) const {
    const std::span<const float> all = statistics_.sample(layer, head);
    const size_t n_all = all.size() / dim();
    const size_t n = std::min(n_all, static_cast<size_t>(options_.max_svd_samples));
    Vector rows;
    Vector sum(dim());
    for (size_t i = 0; i < n; ++i) {
      // An even stride with both ends, rounded down, as linspace makes integers.
      const size_t row = n == 1 ? 0 : i * (n_all - 1) / (n - 1);
      for (size_t c = 0; c < dim(); ++c) {
        rows.push_back(static_cast<double>(all[row * dim() + c]));
        sum[c] += rows.back();
      }
    }
    const policy::PrincipalAxes axes = policy::singular_axes(rows, dim());
    const std::span<const double> axis = axes.axis(0);
    if (options_.sign == SignRule::kSum) {
      return oriented(axis, dot(axis, sum));
    }
    int64_t n_positive = 0;
    for (size_t i = 0; i < n; ++i) {
      n_positive += dot(std::span(rows).subspan(i * dim(), dim()), axis) > 0 ? 1 : 0;
    }
    return oriented(axis, 2 * n_positive > static_cast<int64_t>(n) ? 1 : -1);
  }

  const QueryStatistics& statistics_;
  const FitOptions& options_;
  policy::FilterShape shape_;
  int n_blocks_;
};

void append(std::vector<float>& to, std::span<const double> values) {
  std::ranges::transform(values, std::back_inserter(to),
                         [](double value) { return static_cast<float>(value); });
}

void append(std::vector<float>& to, std::span<const float> values) {
  to.insert(to.end(), values.begin(), values.end());
}

// What is found of a KV head and of the query heads that share it.
struct GroupFit {
  Fit part;  // its heads' entries of each list
  bool is_guarded = false;
};

GroupFit fit_group(const Fitter& fitter, const QueryStatistics& statistics, int layer,
                   int kv_head) {
  const policy::FilterShape& shape = statistics.shape().heads;
  const int group = shape.n_heads / shape.n_kv_heads;
  const auto n_halves = static_cast<size_t>(statistics.n_halves());
  const auto n_blocks = static_cast<size_t>(fitter.n_blocks());
  GroupFit found;
  Fit& part = found.part;
  std::vector<Vector> directions;
  std::vector<std::vector<Vector>> half_directions(n_halves);
  std::vector<Vector> group_means(n_blocks, Vector(fitter.dim()));
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    const HeadFit fit = fitter.fit_head(layer, head);
    std::vector<Vector> means;
    for (size_t block = 0; block < n_blocks; ++block) {
      means.push_back(fitter.block_mean(layer, head, static_cast<int>(block)));
      for (size_t c = 0; c < fitter.dim(); ++c) {
        group_means[block][c] += means.back()[c] / group;
      }
    }
    append(part.kappa, fitter.kappa(fit.half_directions, means));
    part.half_cosine.push_back(
        n_halves < 2 ? std::numeric_limits<float>::quiet_NaN()
                     : static_cast<float>(dot(fit.half_directions[0], fit.half_directions[1])));
    part.energy.push_back(static_cast<float>(fit.energy));
    append(part.mean_projections, fit.mean_projections);
    directions.push_back(fit.direction);
    for (size_t half = 0; half < n_halves; ++half) {
      half_directions[half].push_back(fit.half_directions[half]);
    }
  }
  double group_length = 0;
  append(part.filters.directions, fitter.group_direction(directions, group_length));
  found.is_guarded = group_length < kLeastGroupLength;
  part.group_length.push_back(static_cast<float>(group_length));
  std::vector<Vector> halves;
  for (const std::vector<Vector>& of_half : half_directions) {
    double ignored = 0;
    halves.push_back(fitter.group_direction(of_half, ignored));
  }
  append(part.kv_kappa, fitter.kappa(halves, group_means));
  Vector mean_key(fitter.dim());
  statistics.mean_key(layer, kv_head, mean_key);
  append(part.mean_keys, mean_key);
  return found;
}

}  // namespace

const char* estimator_name(Estimator estimator) {
  return kEstimators.name(estimator);
}
const char* sign_rule_name(SignRule rule) {
  return kSignRules.name(rule);
}
Estimator parse_estimator(const std::string& name) {
  return kEstimators.parse(name);
}
SignRule parse_sign_rule(const std::string& name) {
  return kSignRules.parse(name);
}

Fit fit_filters(const QueryStatistics& statistics, const FitOptions& options, int n_threads) {
  const policy::FilterShape& shape = statistics.shape().heads;
  const Fitter fitter(statistics, options);
  std::vector<GroupFit> groups(static_cast<size_t>(shape.n_layers) *
                               static_cast<size_t>(shape.n_kv_heads));
  kernels::ParallelFor parallel(n_threads);
  parallel.run(static_cast<int>(groups.size()), [&](int item, int /*thread*/) {
    groups[static_cast<size_t>(item)] =
        fit_group(fitter, statistics, item / shape.n_kv_heads, item % shape.n_kv_heads);
  });
  Fit fit;
  fit.filters.shape = shape;
  fit.filters.frame = statistics.shape().frame;
  fit.filters.is_normalized = options.is_normalized;
  for (const GroupFit& group : groups) {
    append(fit.filters.directions, group.part.filters.directions);
    fit.filters.is_guarded.push_back(group.is_guarded);
    append(fit.kappa, group.part.kappa);
    append(fit.kv_kappa, group.part.kv_kappa);
    append(fit.half_cosine, group.part.half_cosine);
    append(fit.energy, group.part.energy);
    append(fit.mean_projections, group.part.mean_projections);
    append(fit.mean_keys, group.part.mean_keys);
    append(fit.group_length, group.part.group_length);
  }
  for (size_t i = 0; i < fit.kv_kappa.size(); i += 3) {
    fit.filters.kappa_low.push_back(fit.kv_kappa[i]);
  }
  return fit;
}

}  // namespace winnow::calibrate
