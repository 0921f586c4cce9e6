// Filters of planted queries: what is recovered, which way it points, and what is refused.

#include "calibrate/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/error.h"
#include "calibrate/calibrate.h"
#include "policy/key_directions.h"
#include "policy/principal_axes.h"
#include "policy/tiny_layer.h"

namespace winnow::calibrate {
namespace {

using policy::FilterShape;
using testing::AllOf;
using testing::HasSubstr;
using Vector = std::vector<double>;

constexpr size_t kDim = 64;

Vector unit_vector(std::mt19937& random) {
  std::normal_distribution<double> normal;
  Vector x(kDim);
  for (double& each : x) {
    each = normal(random);
  }
  const double length = std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
  for (double& each : x) {
    each /= length;
  }
  return x;
}

double cosine(std::span<const float> a, const Vector& b) {
  double dot = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    dot += static_cast<double>(a[i]) * b[i];
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += b[i] * b[i];
  }
  return dot / std::sqrt(aa * bb);
}

// n vectors: drift · u + spread · (±normal) · w + noise.
struct Planted {
  double drift = 6;
  double spread = 0;
  double noise = 0.1;
  size_t n = 600;

  std::vector<float> rows(const Vector& u, const Vector& w, std::mt19937& random) const {
    std::normal_distribution<double> normal;
    std::vector<float> all;
    for (size_t i = 0; i < n; ++i) {
      const double along = spread * normal(random);
      for (size_t c = 0; c < kDim; ++c) {
        all.push_back(static_cast<float>(drift * u[c] + along * w[c] + noise * normal(random)));
      }
    }
    return all;
  }
};

FilterShape one_head(int n_heads = 1, int n_kv_heads = 1) {
  return {.n_layers = 1, .n_heads = n_heads, .n_kv_heads = n_kv_heads, .head_dim = kDim};
}

Fit fit(const std::vector<float>& queries, const FilterShape& shape, const FitOptions& options = {},
        int max_samples = 3000) {
  return calibrate(queries, shape, {.fit = options, .max_samples = max_samples}).fit;
}

std::string refusal(const std::vector<float>& queries, const FilterShape& shape) {
  try {
    fit(queries, shape);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// w at a right angle to u.
Vector across(const Vector& u, std::mt19937& random) {
  Vector w = unit_vector(random);
  const double dot = std::inner_product(u.begin(), u.end(), w.begin(), 0.0);
  double square = 0;
  for (size_t c = 0; c < kDim; ++c) {
    w[c] -= dot * u[c];
    square += w[c] * w[c];
  }
  for (double& each : w) {
    each /= std::sqrt(square);
  }
  return w;
}

TEST(Fit, RecoversAPlantedDriftAndItsOrientation) {
  std::mt19937 random(1);
  const Vector u = unit_vector(random);
  const Vector w = across(u, random);
  for (const Estimator estimator : {Estimator::kMoments, Estimator::kSvd}) {
    for (const double drift : {1.0, -1.0, 6.0, -6.0}) {
      const auto queries = Planted{.drift = drift}.rows(u, w, random);
      const Fit found = fit(queries, one_head(), {.estimator = estimator});
      const double expected = drift > 0 ? 1 : -1;
      EXPECT_GT(cosine(found.filters.directions, u) * expected, 0.99) << drift;
      EXPECT_GT(found.kappa[0], 0.9 * std::abs(drift));
      EXPECT_NEAR(found.kappa[1], std::abs(drift), 0.05);
      EXPECT_GT(found.half_cosine[0], 0.99F);
    }
  }
}

// What queries show and keys, whose mean is taken away, do not: a drift that all have. Where a few keys alone have it, it is
// spread, and found, without its sign.
TEST(Fit, QueriesShowADriftThatKeysLose) {
  std::mt19937 random(11);
  double all_drift = 0;
  double some_drift = 0;
  constexpr int kTrials = 20;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Vector u = unit_vector(random);
    const Vector w = across(u, random);
    EXPECT_GT(cosine(fit(Planted{.drift = 6}.rows(u, w, random), one_head()).filters.directions, u),
              0.99);
    const auto key_cosine = [&](std::vector<float> keys) {
      const policy::TinyHead head = policy::TinyHead::with_rows(static_cast<int>(kDim), keys, keys);
      policy::KeyDirections directions(
          {.n_layers = 1,
           .n_kv_heads = 1,
           .head_dim = static_cast<int>(kDim),
           .sample = {.n_keys = static_cast<int>(head.positions.size())}});
      const cache::HeadRows rows = head.rows({});
      directions.freeze(0, {&rows, 1});
      const auto direction = directions.direction(0, 0);
      return std::abs(cosine(direction, u));
    };
    const std::vector<float> drifting = Planted{.drift = -6, .n = 300}.rows(u, w, random);
    std::vector<float> mixed = Planted{.drift = -1, .n = 30}.rows(u, w, random);
    const std::vector<float> others = Planted{.drift = 0, .n = 270}.rows(u, w, random);
    mixed.insert(mixed.end(), others.begin(), others.end());
    all_drift += key_cosine(drifting) / kTrials;
    some_drift += key_cosine(mixed) / kTrials;
  }
  EXPECT_LT(all_drift, 0.3);
  EXPECT_GT(some_drift, 2 * all_drift);
}

// The drift is the signal: taking the mean away leaves the axis of greatest variance.
TEST(Fit, DoesNotCentre) {
  std::mt19937 random(2);
  const Vector u = unit_vector(random);
  const Vector w = across(u, random);
  const auto queries = Planted{.drift = 6, .spread = 2, .n = 4000}.rows(u, w, random);
  EXPECT_GT(cosine(fit(queries, one_head()).filters.directions, u), 0.999);
  Vector covariance(kDim * kDim);
  Vector mean(kDim);
  const size_t n = queries.size() / kDim;
  for (size_t i = 0; i < n; ++i) {
    for (size_t c = 0; c < kDim; ++c) {
      mean[c] += static_cast<double>(queries[i * kDim + c]) / static_cast<double>(n);
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t a = 0; a < kDim; ++a) {
      for (size_t b = 0; b < kDim; ++b) {
        covariance[a * kDim + b] += (static_cast<double>(queries[i * kDim + a]) - mean[a]) *
                                    (static_cast<double>(queries[i * kDim + b]) - mean[b]);
      }
    }
  }
  const policy::PrincipalAxes centred = policy::principal_axes(covariance, kDim);
  const std::vector<float> axis(centred.axis(0).begin(), centred.axis(0).end());
  EXPECT_LT(std::abs(cosine(axis, u)), 0.05);
  EXPECT_GT(std::abs(cosine(axis, w)), 0.999);
}

TEST(Fit, MomentsFindWhatADecompositionOfAllRowsFinds) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 5; ++trial) {
    const Vector u = unit_vector(random);
    const Vector w = across(u, random);
    const auto queries =
        Planted{.drift = 1.5, .spread = 1, .noise = 0.4, .n = 900}.rows(u, w, random);
    const Fit moments = fit(queries, one_head());
    const Fit svd = fit(queries, one_head(), {.estimator = Estimator::kSvd});
    const Vector other(svd.filters.directions.begin(), svd.filters.directions.end());
    EXPECT_GE(cosine(moments.filters.directions, other), 1 - 1e-6);
  }
}

TEST(Fit, SamplesAreChosenBySeedAndMoreThanTheLimitAreThinnedOut) {
  std::mt19937 random(4);
  const Vector u = unit_vector(random);
  const auto queries = Planted{.drift = 2, .noise = 1, .n = 500}.rows(u, u, random);
  const auto directions = [&](uint64_t seed, int max_samples, int max_svd_samples) {
    return calibrate(queries, one_head(),
                     {.fit = {.estimator = Estimator::kSvd, .max_svd_samples = max_svd_samples},
                      .max_samples = max_samples,
                      .seed = seed})
        .fit.filters.directions;
  };
  EXPECT_EQ(directions(1, 50, 3000), directions(1, 50, 3000));
  EXPECT_NE(directions(1, 50, 3000), directions(2, 50, 3000));
  EXPECT_NE(directions(1, 500, 3000), directions(1, 500, 40));
  EXPECT_EQ(directions(1, 500, 3000), directions(2, 9999, 3000));  // all of them
}

// One far row outweighs many near ones in the sum, not in the count.
TEST(Fit, TheSignIsOfTheSumOrOfTheMajority) {
  std::vector<float> queries(10 * kDim);
  for (size_t i = 0; i < 10; ++i) {
    queries[i * kDim] = i == 0 ? 30.0F : -1.0F;
    queries[i * kDim + 1] = 0.01F * static_cast<float>(i);
  }
  const auto first = [&](SignRule sign) {
    return fit(queries, one_head(), {.estimator = Estimator::kSvd, .sign = sign})
        .filters.directions[0];
  };
  EXPECT_GT(first(SignRule::kSum), 0.9F);
  EXPECT_LT(first(SignRule::kMajority), -0.9F);
  EXPECT_THROW(fit(queries, one_head(), {.sign = SignRule::kMajority}), Error);
}

TEST(Fit, GroupsShareTheMeanOfTheirFilters) {
  std::mt19937 random(5);
  const Vector u = unit_vector(random);
  const Vector w = across(u, random);
  std::vector<float> queries = Planted{}.rows(u, w, random);
  const std::vector<float> second = Planted{}.rows(w, u, random);
  queries.insert(queries.end(), second.begin(), second.end());
  Vector both(kDim);
  for (size_t c = 0; c < kDim; ++c) {
    both[c] = u[c] + w[c];
  }
  const auto length = [](const Fit& found) {
    double square = 0;
    for (const float each : found.filters.directions) {
      square += static_cast<double>(each) * static_cast<double>(each);
    }
    return std::sqrt(square);
  };
  const Fit normalized = fit(queries, one_head(2, 1));
  EXPECT_GT(cosine(normalized.filters.directions, both), 0.999);
  EXPECT_NEAR(length(normalized), 1, 1e-6);
  EXPECT_NEAR(normalized.group_length[0], std::sqrt(0.5), 0.01);
  const Fit mean = fit(queries, one_head(2, 1), {.is_normalized = false});
  EXPECT_NEAR(length(mean), std::sqrt(0.5), 0.01);
  // Heads of their own keep what they have.
  const Fit own = fit(queries, one_head(2, 2));
  EXPECT_GT(cosine(std::span(own.filters.directions).first(kDim), u), 0.999);
  EXPECT_GT(cosine(std::span(own.filters.directions).subspan(kDim), w), 0.999);
}

TEST(Fit, FiltersThatCancelAreGuarded) {
  std::mt19937 random(6);
  const Vector u = unit_vector(random);
  std::vector<float> queries = Planted{}.rows(u, u, random);
  const std::vector<float> opposite = Planted{.drift = -6}.rows(u, u, random);
  queries.insert(queries.end(), opposite.begin(), opposite.end());
  const Calibration found = calibrate(queries, one_head(2, 1), {});
  EXPECT_TRUE(found.fit.filters.guarded(0, 0));
  EXPECT_EQ(found.fit.filters.directions, std::vector<float>(kDim));
  const std::string file = format_calibration(found);
  EXPECT_TRUE(policy::parse_filters(std::as_bytes(std::span(file)), "f").guarded(0, 0));
}

// Held out, noise points nowhere: in-sample its mean projection is never negative.
TEST(Fit, KappaOfNoiseIsNotPositiveByConstruction) {
  std::mt19937 random(7);
  const Vector u = unit_vector(random);
  int n_positive = 0;
  int n_clear = 0;
  constexpr int kTrials = 60;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Fit found = fit(Planted{.drift = 0, .noise = 1, .n = 300}.rows(u, u, random), one_head());
    n_positive += found.kappa[1] > 0 ? 1 : 0;
    n_clear += found.kappa[0] > 0 ? 1 : 0;
    EXPECT_LE(found.kappa[0], found.kappa[1]);
    EXPECT_LE(found.kappa[1], found.kappa[2]);
  }
  EXPECT_GT(n_positive, kTrials / 4);
  EXPECT_LT(n_positive, kTrials * 3 / 4);
  EXPECT_LT(n_clear, kTrials / 6);
}

TEST(Fit, RefusesQueriesThatHaveNoDirection) {
  std::mt19937 random(8);
  const Vector u = unit_vector(random);
  std::vector<float> queries = Planted{.n = 40}.rows(u, u, random);
  const size_t n = queries.size();
  queries.resize(3 * n, 0.0F);
  const auto third = [&](const auto& value) {
    std::copy_n(queries.begin(), n, queries.begin() + static_cast<std::ptrdiff_t>(n));
    for (size_t i = 2 * n; i < 3 * n; ++i) {
      queries[i] = value(i % kDim);
    }
    return refusal(queries, one_head(3, 3));
  };
  EXPECT_THAT(third([](size_t) { return 0.0F; }),
              AllOf(HasSubstr("layer 0, head 2"), HasSubstr("zero")));
  EXPECT_THAT(third([](size_t c) { return static_cast<float>(c); }),
              AllOf(HasSubstr("layer 0, head 2"), HasSubstr("the same")));
  EXPECT_THAT(
      third([](size_t c) { return c == 3 ? std::numeric_limits<float>::infinity() : 1.0F; }),
      AllOf(HasSubstr("layer 0, head 2"), HasSubstr("not finite")));
  EXPECT_THAT(refusal(std::vector<float>(kDim, 1.0F), one_head()), HasSubstr("at least 2"));
}

TEST(Fit, ProjectionsAndEnergyDescribeTheQueries) {
  std::mt19937 random(9);
  const Vector u = unit_vector(random);
  const Vector w = across(u, random);
  const Fit found =
      fit(Planted{.drift = 6, .spread = 2, .noise = 0}.rows(u, w, random), one_head());
  EXPECT_NEAR(found.mean_projections[0], 6, 0.1);
  EXPECT_LT(found.mean_projections[1], 0.2F);
  EXPECT_NEAR(found.energy[0], 36.0 / 40, 0.02);
}

}  // namespace
}  // namespace winnow::calibrate
