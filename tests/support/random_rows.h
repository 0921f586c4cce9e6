// Random keys, values and queries that look like a model's: outliers, a common offset, peaky attention.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "cache/cache.h"

namespace winnow::test {

// [n] normal numbers; one element in sixteen is three times larger. A dot product of two such rows is peaky without being
// large: the error of a score grows with its size, and with it that of any float attention.
std::vector<float> random_floats(std::mt19937& random, size_t n, float scale = 1.0F);

// Appends rows for tokens at first_pos, first_pos + 1, … to every KV head of `layer`; keys and values are
// [n_tokens, n_kv_heads, head_dim]. Their static scores are projections on `direction`, or squared norms.
void append_tokens(cache::Cache& cache, int layer, int first_pos, std::span<const float> keys,
                   std::span<const float> values, std::span<const float> direction = {});

// A random ascending choice of k of n slots.
std::vector<int> random_slots(std::mt19937& random, int n, int k);

}  // namespace winnow::test
