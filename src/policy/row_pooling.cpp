#include "policy/row_pooling.h"

#include <algorithm>

namespace winnow::policy {

void pool_rows(std::span<const float> x, int kernel, bool takes_max, std::span<float> pooled) {
  const auto n = std::ssize(x);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto first = std::max<std::ptrdiff_t>(0, i - (kernel - 1) / 2);
    const auto last = std::min<std::ptrdiff_t>(n, i + kernel / 2 + 1);
    float greatest = 0;
    double sum = 0;
    for (std::ptrdiff_t j = first; j < last; ++j) {
      greatest = std::max(greatest, x[static_cast<size_t>(j)]);
      sum += static_cast<double>(x[static_cast<size_t>(j)]);
    }
    pooled[static_cast<size_t>(i)] =
        takes_max ? greatest : static_cast<float>(sum / static_cast<double>(kernel));
  }
}

}  // namespace winnow::policy
