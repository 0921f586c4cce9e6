#include "kernels/query_window.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::kernels {

QueryWindow::QueryWindow(const Shape& shape) : shape_(shape), layers_(shape.is_watched.size()) {
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    if (shape.is_watched[layer]) {
      layers_[layer].q.resize(static_cast<size_t>(shape.n_queries) * token_floats());
      layers_[layer].rotations.resize(static_cast<size_t>(shape.n_queries));
    }
  }
}

void QueryWindow::add(int layer, const float* q, int n_tokens, int first_pos,
                      int first_rotation) noexcept {
  if (layers_.empty() || ring(layer).empty()) {
    return;
  }
  const int n_kept = std::min(n_tokens, shape_.n_queries);
  for (int token = n_tokens - n_kept; token < n_tokens; ++token) {
    const auto at = static_cast<size_t>((first_pos + token) % shape_.n_queries);
    std::copy_n(q + static_cast<size_t>(token) * token_floats(), token_floats(),
                ring(layer).data() + at * token_floats());
  }
  note(layer, n_tokens, first_pos, first_rotation);
}

void QueryWindow::note(int layer, int n_tokens, int first_pos, int first_rotation) noexcept {
  if (layers_.empty() || ring(layer).empty()) {
    return;
  }
  Layer& state = layers_[static_cast<size_t>(layer)];
  if (first_pos != state.end_pos) {  // the first, or what came between was taken back
    state.first_pos = first_pos;
  }
  for (int token = std::max(n_tokens - shape_.n_queries, 0); token < n_tokens; ++token) {
    state.rotations[static_cast<size_t>((first_pos + token) % shape_.n_queries)] =
        first_rotation + token;
  }
  state.end_pos = first_pos + n_tokens;
}

int QueryWindow::begin_pos(int layer) const {
  const Layer& state = layers_[static_cast<size_t>(layer)];
  return std::max(state.first_pos, state.end_pos - shape_.n_queries);
}

const float* QueryWindow::query(int layer, int head, int pos) const {
  WINNOW_CHECK(pos >= begin_pos(layer) && pos < end_pos(layer));
  const auto at = static_cast<size_t>(pos % shape_.n_queries);
  return layers_[static_cast<size_t>(layer)].q.data() + at * token_floats() +
         static_cast<size_t>(head) * static_cast<size_t>(shape_.head_dim);
}

int QueryWindow::rotation(int layer, int pos) const {
  WINNOW_CHECK(pos >= begin_pos(layer) && pos < end_pos(layer));
  return layers_[static_cast<size_t>(layer)].rotations[static_cast<size_t>(pos % shape_.n_queries)];
}

int QueryWindow::rotation_end() const {
  int end = 0;
  for (const Layer& layer : layers_) {
    for (int pos = std::max(layer.first_pos, layer.end_pos - shape_.n_queries); pos < layer.end_pos;
         ++pos) {
      end = std::max(end, layer.rotations[static_cast<size_t>(pos % shape_.n_queries)] + 1);
    }
  }
  return end;
}

size_t QueryWindow::bytes(const Shape& shape) {
  const auto n_watched = std::count(shape.is_watched.begin(), shape.is_watched.end(), true);
  return static_cast<size_t>(n_watched) * static_cast<size_t>(shape.n_queries) *
         (static_cast<size_t>(shape.n_heads) * static_cast<size_t>(shape.head_dim) * sizeof(float) +
          sizeof(int32_t));
}

}  // namespace winnow::kernels
