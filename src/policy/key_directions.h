// Where each head's first keys spread most: a direction that is found once and then stays.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "cache/rows.h"

namespace winnow::policy {

// Which keys directions are found from.
struct KeySample {
  int n_keys = 0;            // the first so many; 0: no directions are wanted
  bool takes_block = false;  // rather all that are there once there are so many

  bool operator==(const KeySample&) const = default;
};

class KeyDirections {
 public:
  struct Shape {
    int n_layers = 0;
    int n_kv_heads = 0;
    int head_dim = 0;
    KeySample sample = {};
  };

  KeyDirections() = default;
  explicit KeyDirections(const Shape& shape);

  bool is_empty() const { return shape_.sample.n_keys == 0; }
  bool is_frozen(int layer) const { return is_frozen_[static_cast<size_t>(layer)]; }
  // Of length 1, with a positive element where the largest is; zeros where all keys are the same. Of a layer that is frozen.
  std::span<const float> direction(int layer, int kv_head) const;

  // Finds the directions of a layer from its rows [n_kv_heads], the keys as stored, once every head has enough of them. No
  // row may have gone yet. Does nothing where the layer is frozen.
  void freeze(int layer, std::span<const cache::HeadRows> heads);
  // As before any layer was frozen.
  void clear();

  const Shape& shape() const { return shape_; }
  size_t bytes() const { return bytes(shape_); }
  static size_t bytes(const Shape& shape);
  // For files: [n_layers, n_kv_heads, head_dim].
  std::span<const float> directions() const { return directions_; }
  void restore(int layer, std::span<const float> directions);

 private:
  Shape shape_;
  std::vector<bool> is_frozen_;    // [n_layers]
  std::vector<float> directions_;  // [n_layers, n_kv_heads, head_dim]
};

}  // namespace winnow::policy
