// The directions that keys are projected on as they are appended, so that scoring a row later reads 4 bytes of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/scratch.h"
#include "cache/rows.h"
#include "kernels/rotation.h"

namespace winnow::kernels {

struct ScoreDirections {
  int n_kv_heads = 0;
  int head_dim = 0;
  // They are directions of keys before rotation, and turned to what each key is rotated to.
  bool is_before_rotation = false;
  std::vector<float> elements = {};  // [n_layers, n_kv_heads, head_dim]
  // [n_layers, n_kv_heads]; the static score of the other heads' keys is their squared norm.
  std::vector<uint8_t> has_direction = {};

  bool operator==(const ScoreDirections&) const = default;

  // Empty where the head has none.
  std::span<const float> of(int layer, int kv_head) const {
    const size_t head =
        static_cast<size_t>(layer) * static_cast<size_t>(n_kv_heads) + static_cast<size_t>(kv_head);
    const auto dim = static_cast<size_t>(head_dim);
    return has_direction[head] != 0 ? std::span(elements).subspan(head * dim, dim)
                                    : std::span<const float>();
  }
};

// static_scores() of a head's rows along one direction from before rotation, turned to each of them: turns [rows.n, n_rot].
// scratch [head_dim], scores [rows.n].
void turned_scores(const cache::HeadRows& rows, std::span<const float> direction,
                   const Rotation& rotation, std::span<const float> turns, std::span<float> scratch,
                   std::span<float> scores);

// The static scores of a head's rows, computed from their keys: the bits that append writes. `rotation`, of the keys, is read
// where directions are from before it. scores [rows.n].
void project_keys(const cache::HeadRows& rows, const ScoreDirections& directions, int layer,
                  int kv_head, const Rotation* rotation, Scratch& scratch, std::span<float> scores);

}  // namespace winnow::kernels
