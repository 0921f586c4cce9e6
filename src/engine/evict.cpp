#include "engine/evict.h"

#include "base/stopwatch.h"

namespace winnow::engine {

void view_layers(const cache::CacheShape& shape, int first_layer,
                 std::span<const cache::HeadRows> rows, std::vector<policy::LayerView>& views) {
  const auto n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
  views.clear();
  for (int layer = first_layer; !rows.empty(); ++layer, rows = rows.subspan(n_kv_heads)) {
    if (shape.swa_window(layer) == 0) {
      views.push_back({.layer = layer, .heads = rows.first(n_kv_heads)});
    }
  }
}

bool Evictor::evict(Sequence& sequence, int first_layer, int n_layers) {
  if (sequence.policy.is_unlimited()) {
    return false;
  }
  const Stopwatch stopwatch;
  const cache::CacheShape& shape = sequence.cache.shape();
  rows_.clear();
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      rows_.push_back(sequence.cache.rows(layer, kv_head));
    }
  }
  view_layers(shape, first_layer, rows_, views_);
  if (!sequence.policy.choose(views_, parallel_, choice_)) {
    return false;
  }
  parallel_.run(static_cast<int>(choice_.kept.size()), [&](int item, int /*thread*/) {
    sequence.cache.keep(views_[static_cast<size_t>(item / shape.n_kv_heads)].layer,
                        item % shape.n_kv_heads, choice_.kept[static_cast<size_t>(item)]);
  });
  sequence.evictions.ms += stopwatch.ms();
  return true;
}

void drop_unseen_rows(Sequence& sequence, int first_layer, int n_layers, int last_pos) {
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    sequence.cache.drop_unseen(layer, last_pos);
  }
}

}  // namespace winnow::engine
