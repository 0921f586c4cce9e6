// Runs a model over sequences: prompts in one of two orders, then generated tokens, evicting in between.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/admission.h"
#include "engine/evict.h"
#include "engine/feed.h"
#include "engine/sequence.h"
#include "engine/step_graph.h"
#include "kernels/cache_ops.h"
#include "kernels/cpu_backend.h"
#include "kernels/end_aligned.h"
#include "model/model.h"

namespace winnow::engine {

struct DecodeInput {
  Sequence* sequence;
  Token token;
};

class DeviceRunner;

enum class Cut { kNever, kIfDue, kAlways };

// A sequence's part in a step.
struct StepInput {
  Sequence* sequence;
  std::span<const Token> tokens;
  bool is_prompt = false;     // else one generated token
  bool wants_logits = false;  // of a prompt's last token; generated tokens always have them
  // Whether the rows are cut afterwards: always, never, or when the policy's schedule says so.
  Cut cut = Cut::kIfDue;
};

struct EngineOptions {
  int n_threads = 1;
  int n_batch = 512;  // most prompt tokens in one graph
  // Most positions of a sequence, which some models' rotation depends on; 0: as trained, or as rope scaling makes of it.
  int n_ctx = 0;
  // Weights, graphs and rows on a GPU: all layers of the model, which is there (load_on_gpu).
  bool is_on_gpu = false;
};

class Engine {
 public:
  // `model` must outlive the engine.
  Engine(const model::Model& model, const EngineOptions& options);
  ~Engine();

  // Feeds each sequence's tokens after what it has; the sequences differ, the lengths may. Returns for each feed the
  // logits it wants, [n_wanted, n_vocab]. Throws invalid_argument (no tokens, a token beyond the vocabulary, no room in
  // a cache, an order that check_order() refuses, a sequence that is not usable), resource_exhausted, or cancelled,
  // after which the sequences are unusable.
  std::vector<std::vector<float>> feed(std::span<const Feed> feeds, const FeedOptions& options);

  // One generated token for each of different sequences; returns logits [n_inputs, n_vocab]. Then evicts where the
  // policy's schedule says so. Throws like feed.
  std::vector<float> decode(std::span<const DecodeInput> inputs);

  // All layers once over prompt and generated tokens of different sequences, then eviction; sets `logits` [n_wanted,
  // n_vocab], in the order of the inputs. What is refused (see feed) changes nothing; after any other failure these
  // sequences are unusable. engine/batch.h decides who takes part.
  void step(std::span<const StepInput> inputs, std::vector<float>& logits);

  // Rows for a sequence's cache of such a shape where the engine runs on a GPU, else null. Throws unsupported for rows or heads
  // that have no kernel there, resource_exhausted.
  std::shared_ptr<cache::RemoteRows> make_rows(const cache::CacheShape& shape);

  const EngineOptions& options() const { return options_; }
  const model::Model& model() const { return model_; }

  // What policies see of the layers without a window; until the sequence changes, or another's rows are cut or viewed. Throws
  // unsupported where rows lie in a GPU's memory.
  std::span<const policy::LayerView> view(const Sequence& sequence);

  // engine::fork on the engine's threads, to where its rows are. Where the policy has documents replayed, that happens on the copy, which holds all
  // rows until then.
  Sequence fork(const Sequence& sequence, ForkOptions options);

  // One prompt and what is generated after it.
  struct Workload {
    int n_held;  // positions fed before
    int n_prompt;
    int n_decoded;  // generated tokens that are fed
    PrefillOrder order;
    bool has_all_logits;       // of every prompt token
    int n_mass_rows;           // the most rows of a head where the policy wants column mass, else 0
    bool needs_turns;          // the policy wants to know how far tokens are rotated
    bool is_compared = false;  // the policy wants to know what attention changes
    bool has_chunks = false;   // the policy wants attention in chunks
    int n_rows;                // the most rows of a head
    bool is_contiguous = false;  // the policy's positions are
    bool is_legacy = false;      // PromptEviction::kLegacyOrder
    int rotation_end = 0;        // of the cache before
    int n_replayed = 0;          // the most tokens of a part of a replay
    size_t replay_bytes = 0;     // and what finding its scores takes
  };
  // What that will take: the graphs' buffer, attention scratch, and the residual stream.
  struct Footprint {
    size_t graph_bytes;
    size_t scratch_bytes;
    size_t residual_bytes;

    size_t compute_bytes() const { return graph_bytes + scratch_bytes; }
    size_t total_bytes() const { return compute_bytes() + residual_bytes; }
  };
  Footprint footprint(const Workload& work);
  // GPU memory that it will take beside weights, for rows of such a cache; 0 where there is no GPU.
  size_t gpu_bytes(const Workload& work, const cache::CacheShape& shape,
                   const policy::Needs& needs);
  Footprint peak_footprint() const { return peak_; }
  int n_graphs_built() const { return graphs_.n_built(); }  // a shape in use is built once

 private:
  static constexpr int kOutputRows = 64;  // of the output matrix, in one graph

  void check_place(const Sequence& sequence) const;
  void watch(Sequence& sequence) const;
  // Notes beside the rows of a document, all of which are there, what a replay of it attends to.
  void replay(Sequence& sequence, const ReplayText& text, const FeedOptions& options);
  // Cuts what was fed to its budget, with the document replayed before where the policy wants that.
  void replay_and_cut(const Feed& feed, const FeedOptions& options);
  void feed_chunk_major(PromptFeed& prompt);
  void feed_layer_major(PromptFeed& prompt);
  void feed_legacy_order(PromptFeed& prompt);
  void run_layers(const Chunk& chunk, int first_layer, int n_layers, float* residual,
                  bool is_wanted = true);
  void wait() const;
  bool run_layer_legacy(const Chunk& chunk, int layer, int64_t share, float* residual);
  void settle(const Chunk& chunk, int first_layer, int n_layers);
  void run_decode(const Chunk& chunk, std::vector<float>& logits);
  void run_mixed(Chunk& chunk, std::span<const StepInput> inputs, std::vector<float>& logits);
  void run_output(std::span<const float> residual, std::vector<float>& logits);
  void compute(StepGraph& graph);

  const model::Model& model_;
  EngineOptions options_;
  kernels::CpuBackend backend_;
  Evictor evictor_;
  kernels::StepContext step_;
  kernels::EndAlignedAttention end_aligned_;
  StepGraphs graphs_;
  std::unique_ptr<DeviceRunner> device_;  // null: graphs run on the CPU
  Chunk step_chunk_;                      // of step(); kept for its memory
  Footprint peak_{};
};

}  // namespace winnow::engine
