#include "support/random_rows.h"

#include <algorithm>
#include <numeric>

#include "kernels/append.h"

namespace winnow::test {

std::vector<float> random_floats(std::mt19937& random, size_t n, float scale) {
  std::normal_distribution<float> normal;
  std::vector<float> floats(n);
  for (size_t i = 0; i < n; ++i) {
    floats[i] = normal(random) * scale * (i % 16 == 5 ? 3.0F : 1.0F) + 0.25F * scale;
  }
  return floats;
}

void append_tokens(cache::Cache& cache, int layer, int first_pos, std::span<const float> keys,
                   std::span<const float> values, std::span<const float> direction) {
  const auto dim = static_cast<size_t>(cache.shape().head_dim);
  const size_t token = dim * static_cast<size_t>(cache.shape().n_kv_heads);
  const auto n_rows = static_cast<int>(keys.size() / token);
  for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
    const kernels::NewRows rows{.keys = keys.data() + static_cast<size_t>(kv_head) * dim,
                                .values = values.data() + static_cast<size_t>(kv_head) * dim,
                                .stride = token,
                                .n_rows = n_rows,
                                .first_pos = first_pos,
                                .direction = direction};
    const auto target = cache.reserve(layer, kv_head, n_rows);
    cache.commit(layer, kv_head, n_rows, kernels::append_rows(rows, cache.shape(), target));
  }
}

std::vector<int> random_slots(std::mt19937& random, int n, int k) {
  std::vector<int> slots(static_cast<size_t>(n));
  std::iota(slots.begin(), slots.end(), 0);
  std::shuffle(slots.begin(), slots.end(), random);
  slots.resize(static_cast<size_t>(k));
  std::sort(slots.begin(), slots.end());
  return slots;
}

}  // namespace winnow::test
