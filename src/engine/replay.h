// Has a model repeat what it has read, so that methods know which rows of a document it needs for that.
//
// Once the document has been read with the full cache, the model is asked to repeat it, and is fed the document a second
// time, as if it were its own answer: part by part, each after a request of its own. What these tokens attend to is noted beside the
// document's rows, and the rows that they leave are taken back.
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
#include "model/model.h"
#include "policy/output_weights.h"

namespace winnow::engine {

struct ChatFormat;
struct PromptTokens;

// The words that ask for it, as tokens.
struct ReplayRequest {
  std::vector<model::Token> first = {};  // for the first part, up to where the answer begins
  // For a later part: before the last tokens of the part before it, which say where to go on, and behind them.
  std::vector<model::Token> next_before = {};
  std::vector<model::Token> next_after = {};
};

// In a user's turn of the chat format, or plain where there is none. is_turn_open: the document's turn goes on; otherwise a new
// one begins.
ReplayRequest replay_request(const model::Model& model, const ChatFormat& format,
                             bool is_turn_open);

// A document that has been read.
struct ReplayText {
  ReplayRequest request = {};
  int document_begin = 0;                   // position of its first token
  std::vector<model::Token> document = {};  // none: there is nothing to replay
};

// Of a prompt whose first token is at `position`, once it has been read.
ReplayText replay_text(const model::Model& model, const ChatFormat& format,
                       const PromptTokens& prompt, int position);

struct ReplayPart {
  int begin;  // positions of the document's rows that are scored
  int end;
  std::vector<model::Token> tokens;  // that are fed: the request, and the same tokens again
};

std::vector<ReplayPart> replay_parts(const ReplayText& text, int chunk);

// Tokens that are fed, and of them the most at a time.
struct ReplaySize {
  int n_tokens = 0;
  int n_most = 0;
  int n_parts = 0;
  int n_most_scored = 0;  // of the document in one part
};
ReplaySize replay_size(const ReplayRequest& request, int n_document, int chunk);

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
