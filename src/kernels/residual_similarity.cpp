#include "kernels/residual_similarity.h"

#include <algorithm>
#include <cmath>

namespace winnow::kernels {

double cosine(const float* before, const float* after, int n) noexcept {
  double product = 0;
  double of_before = 0;
  double of_after = 0;
  for (int i = 0; i < n; ++i) {
    const auto a = static_cast<double>(before[i]);
    const auto b = static_cast<double>(after[i]);
    product += a * b;
    of_before += a * a;
    of_after += b * b;
  }
  const double result = product / std::sqrt(of_before * of_after);
  return std::isfinite(result) ? std::clamp(result, -1.0, 1.0) : 0;
}

void ResidualSimilarity::add(int layer, double cosine_of_token) noexcept {
  Layer& to = layers_[static_cast<size_t>(layer)];
  to.n.fetch_add(1, std::memory_order_relaxed);
  to.cosines.fetch_add(std::llround(cosine_of_token * kScale), std::memory_order_relaxed);
}

double ResidualSimilarity::mean(int layer) const {
  const Sums sums = this->sums(layer);
  return sums.n == 0 ? 0 : static_cast<double>(sums.cosines) / kScale / static_cast<double>(sums.n);
}

ResidualSimilarity::Sums ResidualSimilarity::sums(int layer) const {
  const Layer& of = layers_[static_cast<size_t>(layer)];
  return {of.n.load(), of.cosines.load()};
}

void ResidualSimilarity::set_sums(int layer, const Sums& sums) {
  Layer& to = layers_[static_cast<size_t>(layer)];
  to.n = sums.n;
  to.cosines = sums.cosines;
}

}  // namespace winnow::kernels
