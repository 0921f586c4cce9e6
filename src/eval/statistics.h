// What a number of samples can and cannot say: intervals, tests and a verdict in words. Prompts are the units; all
// samples of one prompt belong together. Everything is computed without state, the same on every machine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace winnow::eval {

struct Interval {
  double low = 0;
  double high = 0;
};

double mean(std::span<const double> values);  // of at least one

// The q-quantile of sorted values, at least one, with linear interpolation between neighbours: numpy's default.
double quantile(std::span<const double> sorted, double q);
double median(std::vector<double> values);  // 0 of none

double positive_share(std::span<const double> values);  // how many are above 0; of at least one

enum class BootstrapKind {
  kPercentile,  // quantiles of the resampled means
  kBca,         // bias-corrected and accelerated: Efron, JASA 82 (1987). For skewed values
};

struct BootstrapOptions {
  BootstrapKind kind = BootstrapKind::kPercentile;
  int n_resamples = 10000;
  double confidence = 0.95;
  uint64_t seed = 0;
};

// The means of resamples drawn with replacement, ascending: sorted(fmean(r.choices(values, k=len(values)))) with
// r = random.Random(seed) in Python, but for the rounding of sums.
std::vector<double> bootstrap_means(std::span<const double> values,
                                    const BootstrapOptions& options);

// An interval for the mean of at least one value. Without spread among the values it is that one point, however few
// they are: see compare().
Interval bootstrap_interval(std::span<const double> values, const BootstrapOptions& options = {});

// Wilson's score interval for a share (JASA 22, 1927): n_successes of n, n > 0.
Interval wilson_interval(int n_successes, int n, double confidence = 0.95);

// The one-sided upper bound of a share of which n_successes of n > 0 were seen: Clopper and Pearson (Biometrika 26, 1934).
double binomial_upper_bound(int n_successes, int n, double confidence = 0.95);

// McNemar's exact test: the two-sided binomial p of how the pairs that differ are split; 1 where none does.
double mcnemar_exact(int n_only_first, int n_only_second);

// Holm's step-down correction (Scand. J. Stat. 6, 1979): adjusted p-values in the order given. One that is at most
// alpha is significant with the family's error at most alpha.
std::vector<double> holm(std::span<const double> p_values);

// Two arms on the same prompts. Values of one prompt have the same index.
struct Comparison {
  int n = 0;
  double difference = 0;  // mean of first - second
  Interval interval;      // of it, by bootstrap over prompts
  bool is_binary =
      false;  // all values are 0 or 1; else the two counts and p are of the prompts where one is higher
  int n_first_higher = 0;
  int n_second_higher = 0;
  double p = 1;  // mcnemar_exact() of the two counts: for values that are not binary, the sign test
};
Comparison compare(std::span<const double> first, std::span<const double> second,
                   const BootstrapOptions& options = {});

// What a comparison allows to say; p is comparison.p or its correction by holm(). "higher" and "lower" need p <= 0.05
// and an interval without 0; "no difference above 0.05" needs an interval inside +-0.05, and 60 prompts, since what
// has not been seen in n prompts may still happen in 3/n of all (the rule of three). Else: "too few samples to tell".
std::string verdict(const Comparison& comparison, double p);

}  // namespace winnow::eval
