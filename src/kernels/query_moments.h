// Mean and covariance of the queries that attention was computed for, as they were before positions rotated them: for
// methods that ask what later queries will look like.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/rotation.h"

namespace winnow::kernels {

// Queries of the first positions are not counted: they are unlike all later ones.
inline constexpr int kUncountedQueries = 4;

// The sum of products x xᵀ is kept in strips of 8 rows, each from its first diagonal element to the end: rows 8 s … 8 s + 7
// are columns 8 s … padded_dim - 1. Dimensions are padded to whole strips.
inline constexpr size_t kMomentStrip = 8;
constexpr size_t moment_dim(int head_dim) {
  return (static_cast<size_t>(head_dim) + kMomentStrip - 1) / kMomentStrip * kMomentStrip;
}
constexpr size_t product_doubles(size_t padded_dim) {
  const size_t n_strips = padded_dim / kMomentStrip;
  return kMomentStrip * kMomentStrip * n_strips * (n_strips + 1) / 2;
}

// Consecutive tokens' queries of one head, after rotation.
struct HeadQueries {
  const float* q;  // token i at q + i * stride: [head_dim]
  size_t stride;
  int n_tokens;
  int first_pos;
  const float* turns;  // [n_tokens, n_rot]: of their positions (turns_at)
};

// Sums of one head are added up in double, token by token: their bits do not depend on how tokens come in chunks, nor on
// the instruction set. Queries with an element that is not finite are not counted.
class QueryMoments {
 public:
  struct Shape {
    int n_heads = 0;  // query heads; 0: nothing is counted
    int head_dim = 0;
    std::vector<bool> is_watched = {};  // [n_layers]: queries of the others are not counted
  };

  QueryMoments() = default;
  explicit QueryMoments(const Shape& shape);

  bool watches(int layer) const {
    return shape_.n_heads > 0 && shape_.is_watched[static_cast<size_t>(layer)];
  }
  // Different threads may add to different layers and heads. scratch [scratch_floats()], aligned to 64 bytes.
  void add(int layer, int head, const HeadQueries& queries, const Rotation& rotation,
           float* scratch) noexcept;
  static size_t scratch_floats(int head_dim);
  // Doubles of one head: the sum of the queries [moment_dim(head_dim)], then of their products.
  static size_t sum_doubles(int head_dim) {
    return moment_dim(head_dim) + product_doubles(moment_dim(head_dim));
  }

  // Of the queries counted so far; zeros where there are none. mean [head_dim], covariance [head_dim, head_dim], divided
  // by their number.
  void mean(int layer, int head, std::span<double> mean) const;
  void covariance(int layer, int head, std::span<double> covariance) const;

  // The state of one layer, for files: the number of queries of each head [n_heads], and their sums
  // [n_heads, sum_doubles(head_dim)].
  std::span<int64_t> counts(int layer) { return layers_[static_cast<size_t>(layer)].n; }
  std::span<const int64_t> counts(int layer) const { return layers_[static_cast<size_t>(layer)].n; }
  std::span<double> sums(int layer) { return layers_[static_cast<size_t>(layer)].sums; }
  std::span<const double> sums(int layer) const { return layers_[static_cast<size_t>(layer)].sums; }

  const Shape& shape() const { return shape_; }
  size_t bytes() const { return bytes(shape_); }
  static size_t bytes(const Shape& shape);

 private:
  struct Layer {
    std::vector<int64_t> n;    // [n_heads]
    std::vector<double> sums;  // [n_heads, sum_doubles(head_dim)]
  };

  const double* sums_of(int layer, int head) const;

  Shape shape_;
  std::vector<Layer> layers_;
};

// sum += Σ x, products += Σ x xᵀ, of x [n_tokens, padded_dim] one token after the other. Products of floats are exact in
// double, so that a fused multiply-add gives the same bits as one that is not.
void add_moments(const double* x, size_t n_tokens, size_t padded_dim, double* sum,
                 double* products) noexcept;

}  // namespace winnow::kernels
