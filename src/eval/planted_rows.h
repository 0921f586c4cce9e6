// Rows of one head in which it is known what matters: the synthetic data of a published comparison of Q-Filters and the
// L2-norm cache, draw for draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::eval {

enum class Geometry {
  kQFilters,  // important keys lie far out along the direction of the queries, the others around the origin
  kKeyNorm,    // important keys are short and along it, the others long and against it
  kIsotropic,  // nothing is planted: all is noise
};

inline constexpr int kPlantedHeadDim = 64;
inline constexpr int kPlantedProbes = 32;
inline constexpr int kMostPlantedRows = 10000;

struct PlantedRows {
  int n = 0;
  std::vector<float> keys;       // [n, kPlantedHeadDim]
  std::vector<float> values;     // the same: the same for every budget and geometry
  std::vector<float> probes;     // queries that come later [kPlantedProbes, kPlantedHeadDim]
  std::vector<float> direction;  // unit vector [kPlantedHeadDim] that was planted; empty: none
};

// 1 <= n <= kMostPlantedRows. A quarter of the rows are important, at most half the budget, so that any budget has room for
// them. `seed` is that of numpy's generator.
PlantedRows planted_rows(Geometry geometry, int n, int budget_rows, uint64_t seed);

// The mean over the probes of 1 - cosine(attention's output on the rows that are kept, on all rows), in double; is_kept [n],
// at least one is. The rows that are kept may have other values then [n, kPlantedHeadDim]; empty: their own.
double perturbation(const PlantedRows& rows, const std::vector<uint8_t>& is_kept,
                    std::span<const float> values_then = {});

}  // namespace winnow::eval
