// How much attention changes the residual stream: for each layer the mean over prompt tokens of the cosine between what goes
// into attention and what comes out, the residual included.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

namespace winnow::kernels {

// cos(before, after) of vectors [n], in double; 0 where one is zero or not finite.
double cosine(const float* before, const float* after, int n) noexcept;

// Counted in whole units, so that the order of tokens, and who adds them, changes no bit.
class ResidualSimilarity {
 public:
  static constexpr double kScale = 0x1p36;  // up to 2^24 tokens fit

  ResidualSimilarity() = default;
  explicit ResidualSimilarity(int n_layers) : layers_(static_cast<size_t>(n_layers)) {}

  bool is_empty() const { return layers_.empty(); }
  int n_layers() const { return static_cast<int>(layers_.size()); }
  size_t bytes() const { return layers_.size() * sizeof(Layer); }

  // Different threads may add to one layer.
  void add(int layer, double cosine_of_token) noexcept;

  double mean(int layer) const;  // 0 before any token

  // A layer's sums, for files.
  struct Sums {
    int64_t n;
    int64_t cosines;  // in units of 1 / kScale
  };
  Sums sums(int layer) const;
  void set_sums(int layer, const Sums& sums);

 private:
  struct Layer {
    Layer() = default;
    Layer(const Layer& other) { *this = other; }
    Layer& operator=(const Layer& other) {
      n = other.n.load();
      cosines = other.cosines.load();
      return *this;
    }

    std::atomic<int64_t> n{0};
    std::atomic<int64_t> cosines{0};
  };
  std::vector<Layer> layers_;
};

}  // namespace winnow::kernels
