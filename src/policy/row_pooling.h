// What a row gets of its neighbours: scores of rows in order of position, pooled.
#pragma once

#include <span>

namespace winnow::policy {

// pooled[i] = the greatest, or the mean, of x[i - (kernel-1)/2 … i + kernel/2]; beyond the ends there are zeros.
void pool_rows(std::span<const float> x, int kernel, bool takes_max, std::span<float> pooled);

}  // namespace winnow::policy
