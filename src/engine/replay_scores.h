// What the tokens of a replay attend to, noted beside the document's rows.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/scratch.h"
#include "cache/cache.h"
#include "kernels/activations.h"
#include "kernels/parallel.h"
#include "policy/output_weights.h"

namespace winnow::engine {

// What a part's tokens attend to in the layers without a window. Their own rows are in the cache by the time that they are
// shown (StepGraphs): all keys are read there.
class ReplayScores final : public kernels::ActivationObserver {
 public:
  struct Part {
    int n_sink;  // the first positions, which take part in each softmax
    int begin;   // positions of the rows that are scored
    int end;
    int first_pos;  // of the tokens that are fed
    int n_tokens;
    bool weighs_outputs = false;  // policy::Replay
  };
  // The cache outlives it.
  ReplayScores(const cache::Cache& cache, const kernels::AttendShape& attention, const Part& part,
               int n_threads);

  void observe(const kernels::LayerActivations& activations, int thread,
               int n_threads) noexcept override;

  // Notes what was found beside the rows.
  void write(const policy::OutputWeights& weights, kernels::ParallelFor& parallel,
             cache::Cache& cache);

  // Memory that one takes, n_heads of which are query heads.
  static size_t bytes(const cache::CacheShape& shape, int n_heads, const Part& part, int n_threads);

 private:
  // A thread's memory: the rows of one head that are attended to, without the others between them.
  struct Rows {
    std::vector<std::byte> keys;     // [n_most_rows, head_dim]
    std::vector<int32_t> positions;  // [n_most_rows]
    std::vector<float> peaks;        // [n_scored]
    std::vector<float> factors;      // [n_tokens]
    std::vector<float> scratch;
    int n = 0;
    int first_scored = 0;
  };
  static int n_most_rows(const Part& part) {
    return part.n_sink + part.end - part.begin + part.n_tokens;
  }
  size_t n_scored() const { return static_cast<size_t>(part_.end - part_.begin); }
  // Whose peaks are told apart: query heads where values are weighed, since each has columns of its own in the output
  // projection; else those of a KV head together.
  static int n_peak_heads(const cache::CacheShape& shape, int n_heads, const Part& part) {
    return part.weighs_outputs ? n_heads : shape.n_kv_heads;
  }
  std::span<float> peaks_of(int layer, int head);
  void gather(const cache::HeadRows& from, Rows& rows) const noexcept;
  void weigh(const policy::OutputWeights& weights, int layer, int head, Scratch& scratch);

  const cache::Cache& cache_;
  kernels::AttendShape attention_;
  Part part_;
  int n_heads_;                            // whose peaks are told apart
  std::vector<Rows> threads_;              // [n_threads]
  std::vector<float> peaks_;               // [n_layers, n_heads_, n_scored]
  std::unique_ptr<std::mutex[]> mutexes_;  // [n_heads_]
};

}  // namespace winnow::engine
