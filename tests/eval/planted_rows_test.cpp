// The published tables of synthetic rows, cell by cell, with plain versions of the rules that made them.

#include "eval/planted_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <span>

#include "eval/numpy_random.h"
#include "ggml.h"

namespace winnow::eval {
namespace {

constexpr auto kDim = static_cast<size_t>(kPlantedHeadDim);
constexpr size_t kSinks = 4;

double dot(const float* a, const float* b) {
  return std::inner_product(a, a + kDim, b, 0.0);
}

const float* key(const PlantedRows& rows, size_t i) {
  return &rows.keys[i * kDim];
}

// The budget's best rows, sinks among them.
std::vector<uint8_t> best(std::vector<double> scores, int budget) {
  std::fill_n(scores.begin(), kSinks, INFINITY);
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, std::greater<>(), [&](size_t i) { return scores[i]; });
  std::vector<uint8_t> is_kept(scores.size(), 0);
  for (size_t i = 0; i < static_cast<size_t>(budget); ++i) {
    is_kept[order[i]] = 1;
  }
  return is_kept;
}

// Squared, of keys in half precision, as they were cached: one choice of the tables hangs on it.
std::vector<double> norms(const PlantedRows& rows, double sign) {
  std::vector<double> scores(static_cast<size_t>(rows.n));
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t d = 0; d < kDim; ++d) {
      const auto half = static_cast<double>(ggml_fp16_to_fp32(ggml_fp32_to_fp16(key(rows, i)[d])));
      scores[i] += sign * half * half;
    }
  }
  return scores;
}

// The largest principal direction of the first n keys about their mean, its largest element positive; by power iteration.
std::vector<float> principal_direction(const PlantedRows& rows, size_t n) {
  std::vector<double> mean(kDim, 0.0);
  for (size_t i = 0; i < n; ++i) {
    for (size_t d = 0; d < kDim; ++d) {
      mean[d] += static_cast<double>(key(rows, i)[d]) / static_cast<double>(n);
    }
  }
  std::vector<double> direction(kDim);
  for (size_t d = 0; d < kDim; ++d) {
    direction[d] = std::cos(static_cast<double>(d));  // some vector
  }
  for (int step = 0; step < 3000; ++step) {
    std::vector<double> image(kDim, 0.0);
    for (size_t i = 0; i < n; ++i) {
      double projection = 0;
      for (size_t d = 0; d < kDim; ++d) {
        projection += (static_cast<double>(key(rows, i)[d]) - mean[d]) * direction[d];
      }
      for (size_t d = 0; d < kDim; ++d) {
        image[d] += projection * (static_cast<double>(key(rows, i)[d]) - mean[d]);
      }
    }
    const double norm =
        std::sqrt(std::inner_product(image.begin(), image.end(), image.begin(), 0.0));
    for (size_t d = 0; d < kDim; ++d) {
      direction[d] = image[d] / norm;
    }
  }
  const auto largest =
      std::ranges::max_element(direction, {}, [](double element) { return std::abs(element); });
  const double sign = *largest < 0 ? -1 : 1;
  std::vector<float> result(kDim);
  std::ranges::transform(direction, result.begin(),
                         [&](double element) { return static_cast<float>(sign * element); });
  return result;
}

std::vector<double> projections(const PlantedRows& rows, double sign) {
  const std::vector<float> direction = principal_direction(rows, static_cast<size_t>(rows.n));
  std::vector<double> scores(static_cast<size_t>(rows.n));
  for (size_t i = 0; i < scores.size(); ++i) {
    scores[i] = sign * dot(key(rows, i), direction.data());
  }
  return scores;
}

// H2O as it was published there: row by row, a key stands in for its query and does not see itself, a new row's score is 0,
// and the lowest score goes at once.
std::vector<uint8_t> heavy_hitters(const PlantedRows& rows, int budget) {
  std::vector<size_t> held;
  std::vector<double> scores;
  for (size_t row = 0; row < static_cast<size_t>(rows.n); ++row) {
    std::vector<double> weights;
    for (const size_t other : held) {
      weights.push_back(std::exp(dot(key(rows, row), key(rows, other)) / 8));
    }
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    for (size_t i = 0; i < held.size(); ++i) {
      scores[i] += weights[i] / sum;
    }
    scores.push_back(held.empty() ? 1 : 0);
    held.push_back(row);
    if (std::ssize(held) > budget) {
      const auto worst = std::min_element(scores.begin() + kSinks, scores.end());
      held.erase(held.begin() + (worst - scores.begin()));
      scores.erase(worst);
    }
  }
  std::vector<uint8_t> is_kept(static_cast<size_t>(rows.n), 0);
  for (const size_t row : held) {
    is_kept[row] = 1;
  }
  return is_kept;
}

std::vector<uint8_t> random_rows(int n, int budget, uint64_t seed) {
  std::vector<uint8_t> is_kept(static_cast<size_t>(n), 0);
  std::fill_n(is_kept.begin(), kSinks, uint8_t{1});
  NumpyRandom random(seed + 99);
  constexpr auto sinks = static_cast<int64_t>(kSinks);
  for (const int64_t row : random.choice(n - sinks, budget - sinks)) {
    is_kept[kSinks + static_cast<size_t>(row)] = 1;
  }
  return is_kept;
}

struct Published {
  int n;
  int budget;
  double first;   // the projection on the keys' direction, or the low norms
  double second;  // its negative, or the high norms
  double h2o;
  double random;
  double cosine = 0;  // of the first 64 keys' direction with the planted one
};

uint64_t seed_of(const Published& cell) {
  return 7 + static_cast<uint64_t>(cell.n);
}

constexpr double kRounded = 0.0006;  // published with three decimals, of rows in half precision

void expect_published(Geometry geometry, const Published& cell,
                      std::vector<double> (*scores_of)(const PlantedRows&, double), double sign) {
  SCOPED_TRACE(testing::Message() << cell.n << " rows, budget " << cell.budget);
  const PlantedRows rows = planted_rows(geometry, cell.n, cell.budget, seed_of(cell));
  EXPECT_NEAR(perturbation(rows, best(scores_of(rows, sign), cell.budget)), cell.first, kRounded);
  EXPECT_NEAR(perturbation(rows, best(scores_of(rows, -sign), cell.budget)), cell.second, kRounded);
  EXPECT_NEAR(perturbation(rows, heavy_hitters(rows, cell.budget)), cell.h2o, kRounded);
  EXPECT_NEAR(perturbation(rows, random_rows(cell.n, cell.budget, seed_of(cell))), cell.random,
              kRounded);
}

TEST(PlantedRows, GiveThePublishedTableOfQFilters) {
  for (const Published& cell : {Published{256, 64, .359, .729, .410, .454, .9895},
                                {256, 128, .157, .484, .304, .229, .9912},
                                {512, 64, .476, .749, .787, .524, .9801},
                                {512, 128, .285, .687, .644, .774, .9849},
                                {1024, 64, .764, .522, .679, .703, .9364},
                                {1024, 128, .599, .607, .587, .682, .9339}}) {
    expect_published(Geometry::kQFilters, cell, projections, 1);
    const PlantedRows rows = planted_rows(Geometry::kQFilters, cell.n, cell.budget, seed_of(cell));
    EXPECT_NEAR(std::abs(dot(principal_direction(rows, 64).data(), rows.direction.data())),
                cell.cosine, 6e-5);
  }
}

TEST(PlantedRows, GiveThePublishedTableOfKeyNorms) {
  for (const Published& cell : {Published{256, 64, .345, .594, .418, .462},
                                {256, 128, .174, .396, .298, .233},
                                {512, 64, .469, .721, .792, .523},
                                {512, 128, .266, .507, .641, .800},
                                {1024, 64, .506, .706, .680, .690},
                                {1024, 128, .632, .712, .564, .692}}) {
    expect_published(Geometry::kKeyNorm, cell, norms, -1);
  }
}

TEST(PlantedRows, GiveThePublishedTablesOfNoise) {
  for (const Published& cell : {Published{256, 64, .403, .489, .482, .552},
                                {256, 128, .238, .391, .294, .278},
                                {512, 64, .785, .609, .749, .631},
                                {512, 128, .560, .422, .572, .565},
                                {1024, 64, .726, .680, .716, .728},
                                {1024, 128, .554, .627, .626, .664}}) {
    expect_published(Geometry::kIsotropic, cell, projections, 1);
  }
  for (const Published& cell : {Published{256, 64, .632, .443, .482, .552},
                                {256, 128, .386, .217, .294, .278},
                                {512, 64, .734, .533, .749, .631},
                                {512, 128, .566, .367, .572, .565},
                                {1024, 64, .776, .777, .716, .728},
                                {1024, 128, .720, .573, .626, .664}}) {
    expect_published(Geometry::kIsotropic, cell, norms, -1);
  }
}

TEST(PlantedRows, AreNotMovedByKeepingAll) {
  for (const Geometry geometry : {Geometry::kQFilters, Geometry::kKeyNorm, Geometry::kIsotropic}) {
    for (const int n : {1, 3, 40}) {
      const PlantedRows rows = planted_rows(geometry, n, 1, 3);
      EXPECT_EQ(std::ssize(rows.keys), n * kPlantedHeadDim);
      EXPECT_NEAR(perturbation(rows, std::vector<uint8_t>(static_cast<size_t>(n), 1)), 0, 1e-15);
    }
  }
}

}  // namespace
}  // namespace winnow::eval
