#include "engine/evict.h"

#include <chrono>
#include <vector>

namespace winnow::engine {

bool evict(Sequence& sequence, int first_layer, int n_layers, kernels::ParallelFor& parallel) {
  if (sequence.policy.is_unlimited()) {
    return false;
  }
  const auto start = std::chrono::steady_clock::now();
  const cache::CacheShape& shape = sequence.cache.shape();
  const auto n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
  std::vector<cache::HeadRows> heads;  // [n_layers, n_kv_heads]
  heads.reserve(static_cast<size_t>(n_layers) * n_kv_heads);
  std::vector<policy::LayerView> layers;
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    if (shape.swa_window(layer) > 0) {
      continue;  // cut by its window
    }
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      heads.push_back(sequence.cache.rows(layer, kv_head));
    }
    layers.push_back(
        {.layer = layer, .heads = {heads.data() + heads.size() - n_kv_heads, n_kv_heads}});
  }
  const policy::KeptSlots kept = sequence.policy.choose(layers, parallel);
  if (kept.empty()) {
    return false;
  }
  parallel.run(static_cast<int>(kept.size()), [&](int item, int /*thread*/) {
    sequence.cache.keep(layers[static_cast<size_t>(item / shape.n_kv_heads)].layer,
                        item % shape.n_kv_heads, kept[static_cast<size_t>(item)]);
  });
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  sequence.evictions.ms += elapsed.count();
  return true;
}

void drop_unseen_rows(Sequence& sequence, int first_layer, int n_layers, int last_pos) {
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    sequence.cache.drop_unseen(layer, last_pos);
  }
}

}  // namespace winnow::engine
