#include "kernels/activations.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::kernels {

void activation_turns(const LayerActivations& activations, std::span<float> turns) {
  const Rotation& rotation = *activations.rotation;
  const size_t n_rot = rotation.n_rot();
  WINNOW_CHECK(turns.size() == static_cast<size_t>(activations.n_tokens) * n_rot);
  for (int token = 0; token < activations.n_tokens; ++token) {
    turns_at(rotation, activations.first_rotation + token,
             turns.subspan(static_cast<size_t>(token) * n_rot, n_rot));
  }
}

void before_rotation(const Rotation& rotation, std::span<const float> turns, const float* rotated,
                     std::span<float> before) {
  std::copy_n(rotated, before.size(), before.begin());
  turn_back(rotation, turns, before);
}

}  // namespace winnow::kernels
