// The queries, keys and values of tokens that are read, shown to whoever measures them.
#pragma once

#include <span>

#include "kernels/attend.h"
#include "kernels/rotation.h"

namespace winnow::kernels {

// Of consecutive tokens of one sequence in one layer, as attention takes them: after biases, norms and rotation. Queries
// may have been multiplied with a constant of the model. Valid while they are being shown.
struct LayerActivations {
  int layer;
  int n_tokens;
  int first_pos;       // absolute position of the first token
  int first_rotation;  // what its query and key are rotated to
  AttendShape shape;
  const Rotation* rotation;  // of this layer's queries and keys
  const float* queries;      // [n_tokens, n_heads, head_dim]
  const float* keys;         // [n_tokens, n_kv_heads, head_dim]
  const float* values;       // [n_tokens, n_kv_heads, head_dim]
  int n_embd;
  const float* inputs;  // [n_tokens, n_embd] what all three are projections of

  const float* query(int token, int head) const { return queries + at(token, shape.n_heads, head); }
  const float* key(int token, int kv_head) const {
    return keys + at(token, shape.n_kv_heads, kv_head);
  }
  const float* value(int token, int kv_head) const {
    return values + at(token, shape.n_kv_heads, kv_head);
  }

 private:
  size_t at(int token, int n, int head) const {
    return (static_cast<size_t>(token) * static_cast<size_t>(n) + static_cast<size_t>(head)) *
           static_cast<size_t>(shape.head_dim);
  }
};

// How far each token's query and key are rotated: turns [n_tokens, rotation->n_rot()], for before_rotation().
void activation_turns(const LayerActivations& activations, std::span<float> turns);

// A query or key [head_dim] as it was before rotation, to `before` [head_dim], by the turns [n_rot] of its token; equal to
// that up to rounding, and to the magnitude that some scalings multiply with.
void before_rotation(const Rotation& rotation, std::span<const float> turns, const float* rotated,
                     std::span<float> before);

class ActivationObserver {
 public:
  virtual ~ActivationObserver() = default;

  // Called for each layer and each run of tokens that pass it together, in order of position, by all of n_threads threads
  // at the same time; each thread does its share. Tokens come once per layer; their rows are in the cache by then, but for legacy
  // order.
  virtual void observe(const LayerActivations& activations, int thread, int n_threads) noexcept = 0;
};

}  // namespace winnow::kernels
