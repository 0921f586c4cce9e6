// The last queries that attention was computed for, kept for methods that ask what they attend to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace winnow::kernels {

// What the last n_queries queries of a layer attend to, where that has been computed: the softmax weights that rows get, summed over
// them, [n_heads, stride] in units of 1 / kWindowMassScale.
struct WindowMass {
  const int64_t* mass;
  size_t stride;
  int n_queries;
};

class QueryWindow {
 public:
  struct Shape {
    int n_heads = 0;  // query heads
    int head_dim = 0;
    int n_queries = 0;                  // remembered for each layer; 0: none
    std::vector<bool> is_watched = {};  // [n_layers]: queries of the others are not remembered
  };

  QueryWindow() = default;
  explicit QueryWindow(const Shape& shape);

  // Takes note of the queries of consecutive tokens, rotated to first_rotation …: q [n_tokens, n_heads, head_dim]. Layers are
  // independent: different threads may add to different ones.
  void add(int layer, const float* q, int n_tokens, int first_pos, int first_rotation) noexcept;

  // The same where the queries themselves are elsewhere, and come to ring() when they are asked for.
  void note(int layer, int n_tokens, int first_pos, int first_rotation) noexcept;
  // [n_queries, n_heads, head_dim], that of position p at p mod n_queries; empty where none are remembered.
  std::span<float> ring(int layer) { return layers_[static_cast<size_t>(layer)].q; }

  // The positions of the queries that are remembered: the last n_queries up to the newest, or as many as there were.
  int begin_pos(int layer) const;
  int end_pos(int layer) const { return layers_[static_cast<size_t>(layer)].end_pos; }
  // [head_dim], of a query that is remembered.
  const float* query(int layer, int head, int pos) const;
  // The position that it is rotated to.
  int rotation(int layer, int pos) const;
  // Behind the highest of all that are remembered.
  int rotation_end() const;

  const Shape& shape() const { return shape_; }
  size_t bytes() const { return bytes(shape_); }
  static size_t bytes(const Shape& shape);

 private:
  struct Layer {
    std::vector<float> q;  // [n_queries, n_heads, head_dim]; position p is at p mod n_queries
    std::vector<int32_t> rotations;  // [n_queries], likewise
    int first_pos = 0;               // the oldest query ever added
    int end_pos = 0;                 // behind the newest
  };

  size_t token_floats() const {
    return static_cast<size_t>(shape_.n_heads) * static_cast<size_t>(shape_.head_dim);
  }

  Shape shape_;
  std::vector<Layer> layers_;
};

}  // namespace winnow::kernels
