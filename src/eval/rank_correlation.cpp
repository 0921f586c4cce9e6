#include "eval/rank_correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace winnow::eval {

std::vector<double> average_ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) {
      ++end;
    }
    for (size_t i = begin; i < end; ++i) {
      ranks[order[i]] = 0.5 * static_cast<double>(begin + 1 + end);
    }
    begin = end;
  }
  return ranks;
}

std::optional<double> spearman(std::span<const double> a, std::span<const double> b) {
  WINNOW_CHECK(a.size() == b.size());
  const std::vector<double> x = average_ranks(a);
  const std::vector<double> y = average_ranks(b);
  const double centre = 0.5 * static_cast<double>(x.size() + 1);
  double xx = 0;
  double yy = 0;
  double xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - centre) * (x[i] - centre);
    yy += (y[i] - centre) * (y[i] - centre);
    xy += (x[i] - centre) * (y[i] - centre);
  }
  if (xx == 0 || yy == 0) {
    return std::nullopt;
  }
  return std::clamp(xy / std::sqrt(xx * yy), -1.0, 1.0);
}

double partial_correlation(double ab, double ac, double bc) {
  const double rest = (1 - ac * ac) * (1 - bc * bc);
  return rest > 0 ? std::clamp((ab - ac * bc) / std::sqrt(rest), -1.0, 1.0) : 0;
}

}  // namespace winnow::eval
