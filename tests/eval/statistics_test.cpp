// Intervals and tests against published worked examples and against scipy 1.x and statsmodels, run beside them.

#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>

namespace winnow::eval {
namespace {

// Survival days of the treated mice: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 2.
const std::vector<double> kMice = {94, 197, 16, 38, 99, 141, 23};

double standard_deviation(const std::vector<double>& values) {
  const double centre = mean(values);
  double squares = 0;
  for (const double value : values) {
    squares += (value - centre) * (value - centre);
  }
  return std::sqrt(squares / static_cast<double>(values.size()));
}

TEST(Quantile, InterpolatesAsNumpyDoes) {
  const std::vector<double> values = {1, 2, 4, 8};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 8);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 6.8);  // np.quantile([1, 2, 4, 8], .9)
  EXPECT_EQ(quantile(std::vector<double>{5}, 0.3), 5);
}

TEST(PositiveShare, CountsWhatIsAboveZero) {
  EXPECT_EQ(positive_share(std::vector<double>{-1, 0, 0.5, 2}), 0.5);
  EXPECT_EQ(positive_share(std::vector<double>{-1}), 0);
}

// Table 2.1 there: with ever more resamples the standard error of the mean tends to 23.36.
TEST(Bootstrap, FindsThePublishedStandardError) {
  const std::vector<double> means = bootstrap_means(kMice, {.n_resamples = 200000, .seed = 1});
  EXPECT_NEAR(standard_deviation(means), 23.36, 0.1);
}

// r = random.Random(0); m = sorted(sum(r.choices(mice, k=7)) / 7 for _ in range(10000));
// m[0], m[5000], m[-1], np.quantile(m, [.025, .975])
TEST(Bootstrap, DrawsWhatPythonDraws) {
  const std::vector<double> means = bootstrap_means(kMice, {});
  EXPECT_DOUBLE_EQ(means[0], 20.142857142857142);
  EXPECT_DOUBLE_EQ(means[5000], 85.85714285714286);
  EXPECT_DOUBLE_EQ(means[9999], 175.0);
  const Interval interval = bootstrap_interval(kMice);
  EXPECT_NEAR(interval.low, 43.14285714, 1e-8);
  EXPECT_NEAR(interval.high, 135.42857143, 1e-8);
}

// scipy.stats.bootstrap((values,), np.mean, method='BCa') with 200000 and 400000 resamples.
TEST(Bootstrap, AgreesWithScipyOnBiasCorrectedIntervals) {
  BootstrapOptions options{.kind = BootstrapKind::kBca, .n_resamples = 200000, .seed = 3};
  Interval interval = bootstrap_interval(kMice, options);
  EXPECT_NEAR(interval.low, 46.5, 0.6);
  EXPECT_NEAR(interval.high, 138.6, 0.8);
  const std::vector<double> skewed = {0.1, 0.2, 0.3, 0.2, 0.5, 0.9, 4.0, 0.7, 0.1, 9.5, 0.4, 0.6};
  interval = bootstrap_interval(skewed, options);
  EXPECT_NEAR(interval.low, 0.45, 0.03);
  EXPECT_NEAR(interval.high, 4.23, 0.06);
}

TEST(Bootstrap, WithoutSpreadIsAPoint) {
  for (const BootstrapKind kind : {BootstrapKind::kPercentile, BootstrapKind::kBca}) {
    const Interval interval = bootstrap_interval(std::vector<double>(9, 0.25), {.kind = kind});
    EXPECT_EQ(interval.low, 0.25);
    EXPECT_EQ(interval.high, 0.25);
  }
}

// Newcombe, Statistics in Medicine 17 (1998), table I: Wilson's method without continuity correction.
TEST(Wilson, MatchesThePublishedTable) {
  struct Case {
    int n_successes, n;
    double low, high;
  };
  for (const Case& each : {Case{81, 263, 0.2553, 0.3662}, Case{15, 148, 0.0624, 0.1605},
                           Case{0, 20, 0.0, 0.1611}, Case{1, 29, 0.0061, 0.1718}}) {
    const Interval interval = wilson_interval(each.n_successes, each.n);
    EXPECT_NEAR(interval.low, each.low, 5e-5) << each.n_successes;
    EXPECT_NEAR(interval.high, each.high, 5e-5) << each.n_successes;
  }
}

// scipy.stats.binomtest(k, n).proportion_ci(level, method='wilson')
TEST(Wilson, AgreesWithScipyToRounding) {
  EXPECT_NEAR(wilson_interval(81, 263).low, 0.2552885198782742, 1e-12);
  EXPECT_NEAR(wilson_interval(81, 263).high, 0.36620957698280004, 1e-12);
  EXPECT_NEAR(wilson_interval(8, 20, 0.99).low, 0.1791345622921347, 1e-12);
  EXPECT_NEAR(wilson_interval(8, 20, 0.99).high, 0.670686517927616, 1e-12);
  EXPECT_EQ(wilson_interval(0, 10).low, 0);
  EXPECT_EQ(wilson_interval(10, 10).high, 1);
}

// scipy.stats.binomtest(first, first + second, 0.5).pvalue
TEST(McNemar, IsTheExactBinomialTest) {
  EXPECT_NEAR(mcnemar_exact(1, 8), 0.0390625, 1e-13);
  EXPECT_NEAR(mcnemar_exact(33, 31), 0.9006532462520334, 1e-11);
  EXPECT_NEAR(mcnemar_exact(12, 20), 0.21532714972272515, 1e-12);
  EXPECT_NEAR(mcnemar_exact(1000, 1100), 0.03072070786424249, 1e-10);
  EXPECT_EQ(mcnemar_exact(3, 3), 1);
  EXPECT_EQ(mcnemar_exact(0, 0), 1);
  EXPECT_EQ(mcnemar_exact(5, 0), mcnemar_exact(0, 5));
}

// Approval of the prime minister in two surveys, Agresti, Categorical Data Analysis (2002), table 10.1: 150 and 86
// changed their minds. Airway responsiveness, Fagerland et al., BMC Med. Res. Methodol. 13:91 (2013): 1 and 7, p = 0.070.
TEST(McNemar, MatchesPublishedExamples) {
  EXPECT_NEAR(mcnemar_exact(150, 86), 3.7159361395713866e-05, 1e-15);
  EXPECT_NEAR(mcnemar_exact(1, 7), 0.070, 5e-4);
}

// statsmodels.stats.multitest.multipletests(p, method='holm')
TEST(Holm, StepsDownAndKeepsTheOrderGiven) {
  const std::vector<double> adjusted = holm(std::vector<double>{0.01, 0.04, 0.03, 0.005});
  const double expected[] = {0.03, 0.06, 0.06, 0.02};
  for (size_t i = 0; i < adjusted.size(); ++i) {
    EXPECT_NEAR(adjusted[i], expected[i], 1e-15) << i;
  }
  const std::vector<double> tied = holm(std::vector<double>{0.2, 0.01, 0.01, 0.9, 0.02});
  const double expected_tied[] = {0.4, 0.05, 0.05, 0.9, 0.06};
  for (size_t i = 0; i < tied.size(); ++i) {
    EXPECT_NEAR(tied[i], expected_tied[i], 1e-15) << i;
  }
  EXPECT_TRUE(holm({}).empty());
}

TEST(Compare, TheSameSampleTwiceHasNoDifference) {
  const std::vector<double> scores = {1, 0, 1, 1, 0, 0.5};
  const Comparison comparison = compare(scores, scores);
  EXPECT_EQ(comparison.difference, 0);
  EXPECT_EQ(comparison.interval.low, 0);
  EXPECT_EQ(comparison.interval.high, 0);
  EXPECT_EQ(comparison.p, 1);
  EXPECT_EQ(verdict(comparison, comparison.p), "too few samples to tell");
  const std::vector<double> many(60, 1.0);
  EXPECT_EQ(verdict(compare(many, many), 1), "no difference above 0.05");
}

TEST(Compare, CountsPairsAndPairsThem) {
  const std::vector<double> first = {1, 1, 1, 1, 1, 1, 1, 0};
  const std::vector<double> second = {0, 0, 0, 0, 0, 0, 0, 1};
  const Comparison comparison = compare(first, second);
  EXPECT_TRUE(comparison.is_binary);
  EXPECT_EQ(comparison.n_first_higher, 7);
  EXPECT_EQ(comparison.n_second_higher, 1);
  EXPECT_DOUBLE_EQ(comparison.difference, 0.75);
  EXPECT_NEAR(comparison.p, 0.0703125, 1e-12);
  EXPECT_FALSE(compare(std::vector<double>{0.3}, std::vector<double>{1}).is_binary);
}

TEST(Verdict, NeedsBothTheIntervalAndTheTest) {
  std::vector<double> first(20, 1.0);
  std::vector<double> second(20, 1.0);
  for (size_t i = 0; i < 5; ++i) {
    second[i] = 0;
  }
  // Five of five: p = 0.0625, whatever the interval says.
  Comparison comparison = compare(first, second);
  EXPECT_GT(comparison.interval.low, 0);
  EXPECT_EQ(verdict(comparison, comparison.p), "too few samples to tell");
  second[5] = 0;
  comparison = compare(first, second);
  EXPECT_NEAR(comparison.p, 0.03125, 1e-13);
  EXPECT_EQ(verdict(comparison, comparison.p), "higher");
  EXPECT_EQ(verdict(compare(second, first), comparison.p), "lower");
  EXPECT_EQ(verdict(comparison, 0.06), "too few samples to tell");  // as one of a family
}

TEST(Verdict, FewPromptsNeverShowEquality) {
  const std::vector<double> few(59, 1.0);
  EXPECT_EQ(verdict(compare(few, few), 1), "too few samples to tell");
}

// The rule of three's exact form, 1 - 0.05^(1/n), and qbeta(0.95, k + 1, n - k) in R.
TEST(BinomialUpperBound, IsClopperAndPearsons) {
  for (const int n : {1, 20, 59, 149, 1000}) {
    EXPECT_NEAR(binomial_upper_bound(0, n), 1 - std::pow(0.05, 1.0 / n), 1e-9);
  }
  EXPECT_NEAR(binomial_upper_bound(1, 20), 0.216106, 1e-5);
  EXPECT_NEAR(binomial_upper_bound(3, 100), 0.075713, 1e-5);
  EXPECT_EQ(binomial_upper_bound(7, 7), 1);
  for (int k = 0; k < 30; ++k) {
    EXPECT_LT(binomial_upper_bound(k, 30), binomial_upper_bound(k + 1, 30));
    EXPECT_GT(binomial_upper_bound(k, 30), k / 30.0);
  }
}

}  // namespace
}  // namespace winnow::eval
