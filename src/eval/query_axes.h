// The axes along which queries spread, and where other queries lie on them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eval/statistics.h"
#include "kernels/query_moments.h"
#include "policy/principal_axes.h"

namespace winnow::eval {

// The axes of queries' second moment about zero, the greatest first; the first points to where their mean does. `moments` has
// counted some queries of the head.
policy::PrincipalAxes query_axes(const kernels::QueryMoments& moments, int layer, int head);

// Of one head's queries, in the order of their tokens.
class AxisProjections {
 public:
  explicit AxisProjections(policy::PrincipalAxes axes);

  void add(std::span<const float> query);

  // The following need queries. Of those that are all zero, all of it is 0.
  double kappa() const { return sums_[0] / static_cast<double>(n_); }  // E⟨q, v_1⟩
  Interval kappa_interval() const;  // 95 %, by bootstrap over blocks; wants two of them
  double ratio() const { return first_over_others(sums_); }
  double ratio_of_abs() const { return first_over_others(abs_sums_); }
  double energy() const { return square_ > 0 ? first_square_ / square_ : 0; }

 private:
  static constexpr int64_t kBlock = 64;

  static double first_over_others(std::span<const double> sums);

  policy::PrincipalAxes axes_;
  int64_t n_ = 0;
  std::vector<double> sums_;      // [head_dim] of projections on every axis
  std::vector<double> abs_sums_;  // [head_dim] of their absolute values
  double first_square_ = 0;
  double square_ = 0;
  std::vector<double>
      blocks_;  // sums of the first axis, of whole blocks and the one that is being filled
};

}  // namespace winnow::eval
