#include "engine/evict.h"

#include <chrono>
#include <vector>

namespace winnow::engine {

Choice choose_rows(const policy::Policy& policy, const cache::CacheShape& shape, int first_layer,
                   std::span<const cache::HeadRows> rows, kernels::ParallelFor& parallel) {
  const auto n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
  Choice choice;
  std::vector<policy::LayerView> views;
  for (int layer = first_layer; !rows.empty(); ++layer, rows = rows.subspan(n_kv_heads)) {
    if (shape.swa_window(layer) > 0) {
      continue;  // cut by its window
    }
    choice.layers.push_back(layer);
    views.push_back({.layer = layer, .heads = rows.first(n_kv_heads)});
  }
  choice.kept = policy.choose(views, parallel);
  return choice;
}

bool evict(Sequence& sequence, int first_layer, int n_layers, kernels::ParallelFor& parallel) {
  if (sequence.policy.is_unlimited()) {
    return false;
  }
  const auto start = std::chrono::steady_clock::now();
  const cache::CacheShape& shape = sequence.cache.shape();
  std::vector<cache::HeadRows> rows;  // [n_layers, n_kv_heads]
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      rows.push_back(sequence.cache.rows(layer, kv_head));
    }
  }
  const Choice choice = choose_rows(sequence.policy, shape, first_layer, rows, parallel);
  if (choice.kept.empty()) {
    return false;
  }
  parallel.run(static_cast<int>(choice.kept.size()), [&](int item, int /*thread*/) {
    sequence.cache.keep(choice.layers[static_cast<size_t>(item / shape.n_kv_heads)],
                        item % shape.n_kv_heads, choice.kept[static_cast<size_t>(item)]);
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
