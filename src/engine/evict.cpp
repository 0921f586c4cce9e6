#include "engine/evict.h"

#include <chrono>
#include <vector>

namespace winnow::engine {

bool evict(Sequence& sequence, int first_layer, int n_layers, kernels::ParallelFor& parallel) {
  if (sequence.policy.is_unlimited()) {
    return false;
  }
  const auto start = std::chrono::steady_clock::now();
  const int n_kv_heads = sequence.cache.shape().n_kv_heads;
  std::vector<cache::HeadRows> heads;  // [n_layers, n_kv_heads]
  heads.reserve(static_cast<size_t>(n_layers) * static_cast<size_t>(n_kv_heads));
  std::vector<policy::LayerView> layers;
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    for (int kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
      heads.push_back(sequence.cache.rows(layer, kv_head));
    }
    layers.push_back({.layer = layer,
                      .heads = {heads.data() + heads.size() - static_cast<size_t>(n_kv_heads),
                                static_cast<size_t>(n_kv_heads)}});
  }
  const policy::KeptSlots kept = sequence.policy.choose(layers, parallel);
  if (kept.empty()) {
    return false;
  }
  parallel.run(static_cast<int>(kept.size()), [&](int item, int /*thread*/) {
    sequence.cache.keep(first_layer + item / n_kv_heads, item % n_kv_heads,
                        kept[static_cast<size_t>(item)]);
  });
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  sequence.evictions.ms += elapsed.count();
  return true;
}

}  // namespace winnow::engine
