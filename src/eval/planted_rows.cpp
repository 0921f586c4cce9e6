#include "eval/planted_rows.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "base/error.h"
#include "eval/numpy_random.h"

namespace winnow::eval {
namespace {

constexpr auto kDim = static_cast<size_t>(kPlantedHeadDim);

// key = along * direction + noise * normal
struct Cluster {
  double along;
  double noise;
};

struct Clusters {
  Cluster important;
  Cluster others;
};

Clusters clusters_of(Geometry geometry) {
  return geometry == Geometry::kQFilters ? Clusters{.important = {4, 0.2}, .others = {0, 0.3}}
                                         : Clusters{.important = {0.5, 0.05}, .others = {-3, 0.9}};
}
constexpr Cluster kProbes{.along = 1, .noise = 0.1};

std::vector<float> normals(NumpyRandom& random, int n_rows) {
  std::vector<float> values(static_cast<size_t>(n_rows) * kDim);
  std::ranges::generate(values, [&] { return static_cast<float>(random.standard_normal()); });
  return values;
}

std::vector<float> unit_vector(NumpyRandom& random) {
  std::vector<float> vector = normals(random, 1);
  const double square = std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0);
  for (float& element : vector) {
    element /= static_cast<float>(std::sqrt(square));
  }
  return vector;
}

void draw(NumpyRandom& random, const Cluster& cluster, std::span<const float> direction,
          std::span<float> row) {
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<float>(cluster.along * static_cast<double>(direction[i]) +
                                cluster.noise * random.standard_normal());
  }
}

// What attention over the rows (those that are kept) gives for a probe.
std::vector<double> attend(const PlantedRows& rows, std::span<const float> values,
                           std::span<const float> probe, const std::vector<uint8_t>* is_kept) {
  std::vector<double> logits(static_cast<size_t>(rows.n), -INFINITY);
  for (size_t i = 0; i < logits.size(); ++i) {
    if (is_kept == nullptr || (*is_kept)[i] != 0) {
      logits[i] = std::inner_product(probe.begin(), probe.end(), &rows.keys[i * kDim], 0.0) /
                  std::sqrt(static_cast<double>(kDim));
    }
  }
  const double largest = *std::ranges::max_element(logits);
  std::vector<double> output(kDim, 0.0);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double weight = std::exp(logits[i] - largest);
    for (size_t d = 0; d < kDim && weight > 0; ++d) {
      output[d] += weight * static_cast<double>(values[i * kDim + d]);
    }
  }
  return output;  // not divided by the sum of the weights, which a cosine does not see
}

double cosine(const std::vector<double>& a, const std::vector<double>& b) {
  const auto dot = [](const std::vector<double>& x, const std::vector<double>& y) {
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b));
}

}  // namespace

PlantedRows planted_rows(Geometry geometry, int n, int budget_rows, uint64_t seed) {
  WINNOW_CHECK(1 <= n && n <= kMostPlantedRows && budget_rows >= 1);
  NumpyRandom random(seed);
  PlantedRows rows;
  rows.n = n;
  rows.values = normals(random, n);
  if (geometry == Geometry::kIsotropic) {
    rows.keys = normals(random, n);
    rows.probes = normals(random, kPlantedProbes);
    return rows;
  }
  rows.direction = unit_vector(random);
  std::vector<bool> is_important(static_cast<size_t>(n), false);
  for (const int64_t row : random.choice(n, std::min(n / 4, budget_rows / 2))) {
    is_important[static_cast<size_t>(row)] = true;
  }
  rows.keys.resize(static_cast<size_t>(n) * kDim);
  const Clusters clusters = clusters_of(geometry);
  for (const bool important : {true, false}) {
    for (size_t i = 0; i < is_important.size(); ++i) {
      if (is_important[i] == important) {
        draw(random, important ? clusters.important : clusters.others, rows.direction,
             std::span(rows.keys).subspan(i * kDim, kDim));
      }
    }
  }
  rows.probes.resize(kPlantedProbes * kDim);
  for (size_t i = 0; i < kPlantedProbes; ++i) {
    draw(random, kProbes, rows.direction, std::span(rows.probes).subspan(i * kDim, kDim));
  }
  return rows;
}

double perturbation(const PlantedRows& rows, const std::vector<uint8_t>& is_kept,
                    std::span<const float> values_then) {
  const std::span<const float> values = values_then.empty() ? rows.values : values_then;
  WINNOW_CHECK(std::ssize(is_kept) == rows.n && values.size() == rows.values.size());
  double sum = 0;
  for (size_t i = 0; i < kPlantedProbes; ++i) {
    const auto probe = std::span(rows.probes).subspan(i * kDim, kDim);
    sum += 1 -
           cosine(attend(rows, rows.values, probe, nullptr), attend(rows, values, probe, &is_kept));
  }
  return sum / kPlantedProbes;
}

}  // namespace winnow::eval
