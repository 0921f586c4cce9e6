// What filters are made from: moments of each head's queries, summed up while text is read, in memory that does not grow
// with it.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/activations.h"
#include "kernels/query_moments.h"
#include "policy/filters.h"

namespace winnow::calibrate {

// Text is read in passages, which go to blocks in order; the first half of the blocks and the second are kept apart, so that
// what one says can be tried on the other. Sums are in double and do not depend on threads, nor on how passages are cut into
// chunks.
class QueryStatistics final : public kernels::ActivationObserver {
 public:
  struct Shape {
    policy::FilterShape heads;
    policy::FilterFrame frame = policy::FilterFrame::kPost;  // kLegacy: as kPre
    int n_blocks = 1;                                        // even, or 1
    int n_threads = 1;
    // Of all queries of a head, those at these indices are kept as they are: ascending. Empty: none are.
    std::vector<int64_t> sampled = {};
  };

  explicit QueryStatistics(Shape shape);

  // What is shown from now on belongs to this block.
  void begin_passage(int block);
  void observe(const kernels::LayerActivations& activations, int thread,
               int n_threads) noexcept override;
  // The same by hand: rows [n_rows, head_dim] of one query head, for passages that are not read by a model.
  void add(int layer, int head, std::span<const float> rows);
  // The passage has been seen whole. Throws bad_data where a query was not finite, and names its layer and head.
  void end_passage(int64_t n_tokens);

  const Shape& shape() const { return shape_; }
  int n_halves() const { return shape_.n_blocks > 1 ? 2 : 1; }
  int half_of(int block) const { return shape_.n_blocks > 1 ? 2 * block / shape_.n_blocks : 0; }
  int64_t n_tokens(int block) const { return n_tokens_[static_cast<size_t>(block)]; }
  int64_t n_tokens() const;

  // Means, and second moments about zero.
  // mean [head_dim] of the queries of a block that has some.
  void mean(int layer, int head, int block, std::span<double> mean) const;
  // second [head_dim, head_dim] of a half; half = -1: of both.
  void second_moment(int layer, int head, int half, std::span<double> second) const;
  // mean [head_dim] of the KV head's keys, in the frame.
  void mean_key(int layer, int kv_head, std::span<double> mean) const;
  // The sampled queries of a head [n_sampled, head_dim].
  std::span<const float> sample(int layer, int head) const;

  // All sums, for a file to go on from: the same shape gives the same sizes.
  std::vector<std::span<double>> sums();
  std::span<int64_t> tokens_of_blocks() { return n_tokens_; }
  std::span<float> samples() { return samples_; }
  // To be called once sums were filled from such a file.
  void go_on() { n_seen_ = n_tokens(); }
  static size_t bytes(const Shape& shape);

 private:
  struct Scratch {
    std::vector<double> block;  // [kTokensAtOnce, padded_dim]
    std::vector<float> row;     // [head_dim]
    std::vector<float> turns;   // [n_rot]
  };

  size_t head_index(int layer, int head) const;
  double* sum(int block, int layer, int head);
  void add_rows(int layer, int head, const float* rows, size_t stride, int n_rows,
                int64_t first_index, const kernels::LayerActivations* activations,
                Scratch& scratch) noexcept;
  void take_sample(int layer, int head, int64_t index, std::span<const float> row) noexcept;

  Shape shape_;
  size_t dim_;     // head_dim
  size_t padded_;  // moment_dim(head_dim)
  int block_ = 0;
  int64_t n_seen_ = 0;              // tokens of all passages before
  std::vector<int64_t> n_tokens_;   // [n_blocks]
  std::vector<double> query_sums_;  // [n_blocks, n_layers, n_heads, padded_dim]
  std::vector<double> products_;    // [n_halves, n_layers, n_heads, product_doubles]
  std::vector<double> key_sums_;    // [n_layers, n_kv_heads, head_dim]
  std::vector<float> samples_;      // [n_layers, n_heads, n_sampled, head_dim]
  std::vector<int64_t> n_shown_;    // [n_layers]: tokens of this passage
  std::vector<Scratch> scratch_;    // [n_threads]
  std::atomic<int64_t> nonfinite_;  // index of the first such head, or one behind the last
};

}  // namespace winnow::calibrate
