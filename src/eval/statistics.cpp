#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "eval/random.h"

namespace winnow::eval {
namespace {

constexpr double kSignificance = 0.05;
constexpr double kSmallDifference = 0.05;
constexpr int kFewestForEquality = 60;  // 3 / kSmallDifference

double normal_cdf(double z) {
  return 0.5 * std::erfc(-z / std::numbers::sqrt2);
}

// The inverse of normal_cdf, for 0 < p < 1: bisection, since it is called a few times per interval.
double normal_quantile(double p) {
  double low = -40;
  double high = 40;
  for (int step = 0; step < 80; ++step) {
    const double middle = 0.5 * (low + high);
    (normal_cdf(middle) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// Efron's acceleration from the jackknife: for a mean, the sum of cubes over the power 3/2 of the sum of squares.
double acceleration(std::span<const double> values) {
  const double centre = mean(values);
  double squares = 0;
  double cubes = 0;
  for (const double value : values) {
    const double deviation = value - centre;
    squares += deviation * deviation;
    cubes += deviation * deviation * deviation;
  }
  return cubes / (6 * std::pow(squares, 1.5));
}

}  // namespace

double mean(std::span<const double> values) {
  WINNOW_CHECK(!values.empty());
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double quantile(std::span<const double> sorted, double q) {
  WINNOW_CHECK(!sorted.empty() && q >= 0 && q <= 1);
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : quantile(values, 0.5);
}

double positive_share(std::span<const double> values) {
  WINNOW_CHECK(!values.empty());
  const auto n_positive = std::ranges::count_if(values, [](double value) { return value > 0; });
  return static_cast<double>(n_positive) / static_cast<double>(values.size());
}

std::vector<double> bootstrap_means(std::span<const double> values,
                                    const BootstrapOptions& options) {
  WINNOW_CHECK(!values.empty() && options.n_resamples > 0);
  PythonRandom random(options.seed);
  const auto n = static_cast<double>(values.size());
  std::vector<double> means(static_cast<size_t>(options.n_resamples));
  for (double& resampled : means) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      sum += values[static_cast<size_t>(random.random() * n)];
    }
    resampled = sum / n;
  }
  std::ranges::sort(means);
  return means;
}

Interval bootstrap_interval(std::span<const double> values, const BootstrapOptions& options) {
  WINNOW_CHECK(!values.empty() && options.confidence > 0 && options.confidence < 1);
  if (std::ranges::all_of(values, [&](double value) { return value == values[0]; })) {
    return {values[0], values[0]};
  }
  const std::vector<double> means = bootstrap_means(values, options);
  const double tail = 0.5 * (1 - options.confidence);
  if (options.kind == BootstrapKind::kPercentile) {
    return {quantile(means, tail), quantile(means, 1 - tail)};
  }
  // Efron 1987; means that equal the sample's count half, as values with few levels have many.
  const double centre = mean(values);
  const auto [first_equal, first_above] = std::ranges::equal_range(means, centre);
  const double share =
      0.5 * static_cast<double>((first_equal - means.begin()) + (first_above - means.begin())) /
      static_cast<double>(means.size());
  const double half = 0.5 / static_cast<double>(means.size());
  const double bias = normal_quantile(std::clamp(share, half, 1 - half));
  const double skew = acceleration(values);
  const auto corrected = [&](double probability) {
    const double z = bias + normal_quantile(probability);
    return quantile(means, normal_cdf(bias + z / (1 - skew * z)));
  };
  return {corrected(tail), corrected(1 - tail)};
}

Interval wilson_interval(int n_successes, int n, double confidence) {
  WINNOW_CHECK(n > 0 && n_successes >= 0 && n_successes <= n);
  const double z = normal_quantile(0.5 * (1 + confidence));
  const double share = static_cast<double>(n_successes) / n;
  const double scale = 1 + z * z / n;
  const double centre = (share + z * z / (2.0 * n)) / scale;
  const double half = z / scale * std::sqrt(share * (1 - share) / n + z * z / (4.0 * n * n));
  // Exact at the ends, where rounding would leave something.
  return {n_successes == 0 ? 0 : centre - half, n_successes == n ? 1 : centre + half};
}

// The share at which seeing so few successes has the probability 1 - confidence.
double binomial_upper_bound(int n_successes, int n, double confidence) {
  WINNOW_CHECK(n > 0 && n_successes >= 0 && n_successes <= n);
  if (n_successes == n) {
    return 1;
  }
  const auto at_most = [&](double share) {
    double sum = 0;
    for (int k = 0; k <= n_successes; ++k) {
      sum += std::exp(std::lgamma(n + 1.0) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1.0) +
                      k * std::log(share) + (n - k) * std::log1p(-share));
    }
    return sum;
  };
  double low = static_cast<double>(n_successes) / n;
  double high = 1;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (middle < 1 && at_most(std::max(middle, 1e-300)) > 1 - confidence ? low : high) = middle;
  }
  return high;
}

double mcnemar_exact(int n_only_first, int n_only_second) {
  WINNOW_CHECK(n_only_first >= 0 && n_only_second >= 0);
  const int n = n_only_first + n_only_second;
  const int fewer = std::min(n_only_first, n_only_second);
  double tail = 0;
  for (int i = 0; i <= fewer; ++i) {
    tail += std::exp(std::lgamma(n + 1.0) - std::lgamma(i + 1.0) - std::lgamma(n - i + 1.0) -
                     n * std::numbers::ln2);
  }
  return std::min(1.0, 2 * tail);
}

std::vector<double> holm(std::span<const double> p_values) {
  std::vector<size_t> order(p_values.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return p_values[i]; });
  std::vector<double> adjusted(p_values.size());
  double largest = 0;
  for (size_t rank = 0; rank < order.size(); ++rank) {
    const double scaled = p_values[order[rank]] * static_cast<double>(order.size() - rank);
    largest = std::max(largest, std::min(1.0, scaled));
    adjusted[order[rank]] = largest;
  }
  return adjusted;
}

Comparison compare(std::span<const double> first, std::span<const double> second,
                   const BootstrapOptions& options) {
  WINNOW_CHECK(!first.empty() && first.size() == second.size());
  Comparison comparison;
  comparison.n = static_cast<int>(first.size());
  comparison.is_binary = true;
  std::vector<double> differences(first.size());
  for (size_t i = 0; i < first.size(); ++i) {
    differences[i] = first[i] - second[i];
    comparison.n_first_higher += first[i] > second[i] ? 1 : 0;
    comparison.n_second_higher += second[i] > first[i] ? 1 : 0;
    for (const double value : {first[i], second[i]}) {
      comparison.is_binary = comparison.is_binary && (value == 0 || value == 1);
    }
  }
  comparison.difference = mean(differences);
  comparison.interval = bootstrap_interval(differences, options);
  comparison.p = mcnemar_exact(comparison.n_first_higher, comparison.n_second_higher);
  return comparison;
}

std::string verdict(const Comparison& comparison, double p) {
  const Interval& interval = comparison.interval;
  if (p <= kSignificance && (interval.low > 0 || interval.high < 0)) {
    return interval.low > 0 ? "higher" : "lower";
  }
  if (comparison.n >= kFewestForEquality && interval.low >= -kSmallDifference &&
      interval.high <= kSmallDifference) {
    return "no difference above 0.05";
  }
  return "too few samples to tell";
}

}  // namespace winnow::eval
