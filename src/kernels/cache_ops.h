// append and attend as nodes of a ggml graph. Which rows they touch is said by a StepContext outside the graph, so the
// graph's shape does not change as caches grow and shrink.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "cache/cache.h"
#include "ggml.h"
#include "kernels/activations.h"
#include "kernels/attend.h"
#include "kernels/chunk_attention.h"
#include "kernels/key_turns.h"
#include "kernels/page_reads.h"
#include "kernels/query_moments.h"
#include "kernels/query_window.h"
#include "kernels/residual_similarity.h"
#include "kernels/rotation.h"
#include "kernels/score_directions.h"

namespace winnow::kernels {

// A run of consecutive tokens of one sequence inside a step's batch.
struct Slice {
  cache::Cache* cache;
  int first_token;  // index in the batch
  int n_tokens;
  int first_pos;                   // absolute position of the first token
  int first_rotation;              // what its query and key are rotated to
  bool is_prompt;                  // else one generated token, which takes the decode kernel
  QueryWindow* queries = nullptr;  // where the tokens' queries are remembered; null: nowhere
  ResidualSimilarity* similarity = nullptr;  // where the residual stream is compared; null: nowhere
  QueryMoments* moments = nullptr;           // where they are counted; null: nowhere
  ActivationObserver* observer = nullptr;    // whom they are shown; null: nobody
  float mass_decay = 1;  // a generated token multiplies column mass with this first
  const ScoreDirections* directions = nullptr;  // what keys are projected on; null: on nothing
  PageReads* pages = nullptr;                   // which rows a generated token reads; null: all

  // Which chunks' attention is written beside their rows, as static scores; `queries` then remembers those of a chunk.
  ChunkAttention chunk_attention = {};

  // Whether how far each token is rotated is wanted beside its query and key.
  bool needs_turns() const {
    return moments != nullptr || (directions != nullptr && directions->is_before_rotation);
  }
};

class StepContext;

// How a model's queries and keys are rotated in graphs, for what turns them outside of graphs.
struct ModelRotation {
  Rotation all;       // of layers without a window
  Rotation windowed;  // of those with one
};

// One layer's entry to the step context; the nodes' user data. Must outlive the graph.
struct LayerOps {
  StepContext* step;
  int layer;
  int swa_window = 0;  // 0: attention sees all rows; else those of the last so many positions
};

// What the nodes of the step being computed work on. Owned by the engine; set before each compute.
class StepContext {
 public:
  // `rotation`: where queries are counted or keys turned.
  StepContext(const AttendShape& shape, int n_threads, const ModelRotation& rotation = {})
      : shape_(shape),
        n_threads_(n_threads),
        turns_of_keys_(rotation.all),
        turns_of_windowed_keys_(rotation.windowed),
        mass_mutexes_(new std::mutex[static_cast<size_t>(shape.n_kv_heads)]),
        page_scratch_(static_cast<size_t>(n_threads)) {}

  // `slices` cover tokens 0 … n-1 of the batch; tokens after them are padding. Throws resource_exhausted.
  void set_slices(std::span<const Slice> slices);

  // Throws resource_exhausted where the computed step found no memory.
  void check_computed();

  const AttendShape& shape() const { return shape_; }
  size_t scratch_bytes() const {
    return (memory_.size() + turns_.size()) * sizeof(float) + turns_of_keys_.bytes() +
           turns_of_windowed_keys_.bytes();
  }
  // What scratch_bytes() will be for one sequence.
  struct Demand {
    int n_positions = 0;
    bool is_decoded = false;  // some of them are generated
    int n_mass_rows = 0;      // the most rows of a head whose column mass is wanted, else 0
    int n_with_turns = 0;     // the most tokens in a step with Slice::needs_turns()
    int n_rows = 0;           // the most rows of a head
    bool is_turned = false;   // their positions are contiguous, so that keys may be turned
    int rotation_end = 0;     // and this is behind the position that one was rotated to before
    bool has_chunks = false;  // attention in chunks is wanted
  };
  size_t measure_scratch(const Demand& demand) const;

  // The nodes' work for one layer. Tensors: k, v [head_dim, n_kv_heads, n_tokens]; q [head_dim, n_heads, n_tokens];
  // out [head_dim * n_heads, n_tokens].
  void append(int layer, const ggml_tensor* k, const ggml_tensor* v, int thread,
              int n_threads) noexcept;
  void attend(const LayerOps& ops, const ggml_tensor* q, ggml_tensor* out, int thread,
              int n_threads) noexcept;
  // Writes what the rows of chunks get that end with these tokens; after append() and before attend(), which forgets queries.
  void attend_chunks(const LayerOps& ops, const ggml_tensor* q, int thread, int n_threads) noexcept;
  // Prompt tokens' cosine of the residual stream before and after a layer's attention, both [n_embd, n_tokens].
  void compare(int layer, const ggml_tensor* before, const ggml_tensor* after, int thread,
               int n_threads) noexcept;
  // Shows the slices' observers what attention takes; layouts as above, input [n_embd, n_tokens].
  void observe(const LayerOps& ops, const ggml_tensor* q, const ggml_tensor* k,
               const ggml_tensor* v, const ggml_tensor* input, int thread, int n_threads) noexcept;

 private:
  // A piece of work for one thread: a tile of prompt lanes, or some blocks of a decoding slice.
  struct Item {
    int slice;
    int kv_head;
    int first_lane;   // prompt
    int n_lanes;      // prompt; 0 for a decode item
    int first_block;  // decode
    int n_blocks;     // decode
    int group_index;  // decode: which (slice, KV head), in order
    int n_in_group;   // decode: items of that (slice, KV head)
  };

  void add_prompt_items(int slice_index);
  void add_decode_items(int slice_index);
  void set_turns();  // throws std::bad_alloc
  // The static scores of a slice's rows just written to `target`, along a direction from before rotation.
  void score_turned(const Slice& slice, std::span<const float> direction,
                    const cache::Cache::Target& target, float* scratch) const noexcept;
  const Rotation& rotation() const { return turns_of_keys_.rotation(); }
  // The most positions and rows that scratch is measured for.
  struct Rows {
    int n_positions = 0;
    int n_most = 0;  // of a head
    // Of one whose column mass is wanted, else 0. It takes the weights of a tile and what they sum up to, and of decoded
    // tokens the weights until all blocks are known.
    int n_mass = 0;
    int n_turned = 0;  // of one whose keys may be turned, else 0
    bool has_chunks = false;
  };
  size_t thread_floats(const Rows& rows) const;
  size_t memory_floats(const Rows& rows, int n_decode_groups) const;
  size_t weights_floats(int n_mass_rows) const;  // of one decode group
  float* scratch_of(int thread);
  // How the slice's keys are turned for its queries, or null where they are not: `lags` is scratch.
  const KeyTurns* turns_of(const Slice& slice, const LayerOps& ops, const cache::HeadRows& rows,
                           float* lags, KeyTurns& turns) const;
  // A chunk that begins at position `begin`.
  void attend_chunk(const Slice& slice, const LayerOps& ops, const ggml_tensor* q, int kv_head,
                    int begin, float* scratch) noexcept;
  void remember_queries(int layer, const ggml_tensor* q) noexcept;
  void count_queries(int layer, const ggml_tensor* q, int thread, int n_threads) noexcept;
  void attend_prompt_item(const Item& item, const LayerOps& ops, const ggml_tensor* q,
                          ggml_tensor* out, float* scratch) noexcept;
  void attend_decode_item(const Item& item, const LayerOps& ops, const ggml_tensor* q,
                          ggml_tensor* out, float* scratch, Scratch& page_scratch) noexcept;
  // The parts of a head's rows that a generated token reads.
  std::span<const RowRun> choose_runs(const Slice& slice, const Item& item, int layer,
                                      const cache::HeadRows& rows, const DecodeQuery& query,
                                      Scratch& scratch) noexcept;

  AttendShape shape_;
  int n_threads_;
  TurnTable turns_of_keys_;  // of layers without a window
  TurnTable turns_of_windowed_keys_;
  std::vector<Slice> slices_;
  std::vector<Item> items_;
  int n_tokens_ = 0;
  int n_decode_groups_ = 0;
  size_t thread_floats_ = 0;  // scratch of one thread
  // Where in memory_ decoded tokens' weights start, [group, gqa group, n_mass_rows], and their partials, [group, kMaxBlocks,
  // partial].
  size_t weights_offset_ = 0;
  size_t partials_offset_ = 0;
  int n_mass_rows_ = 0;
  int n_turned_rows_ = 0;
  std::unique_ptr<std::mutex[]> mass_mutexes_;  // [n_kv_heads]: a head's tiles add to the same rows
  std::vector<float> memory_;
  std::vector<float> turns_;           // [n_tokens, n_rot], where a slice needs them
  std::vector<Scratch> page_scratch_;  // [n_threads]
  std::atomic<bool> is_out_of_memory_ = false;
  std::unique_ptr<std::atomic<int>[]> n_items_done_;  // [n_decode_groups]
  int n_counters_ = 0;
};

// Writes k and v to the caches; its output only carries the order.
ggml_tensor* build_append(ggml_context* ctx, LayerOps* ops, ggml_tensor* k, ggml_tensor* v);

// Compares the residual stream before and after attention [n_embd, n_tokens], where slices ask for it; has no output.
ggml_tensor* build_compare(ggml_context* ctx, LayerOps* ops, ggml_tensor* before,
                           ggml_tensor* after);

// Attention in chunks, where slices ask for it; has no output.
ggml_tensor* build_attend_chunks(ggml_context* ctx, LayerOps* ops, ggml_tensor* q);

// Shows q, k, v and what they are projections of to those who observe slices; has no output.
ggml_tensor* build_observe(ggml_context* ctx, LayerOps* ops, ggml_tensor* q, ggml_tensor* k,
                           ggml_tensor* v, ggml_tensor* input);

// Attends over the caches after `appended`; returns [head_dim * n_heads, n_tokens].
ggml_tensor* build_attend(ggml_context* ctx, LayerOps* ops, ggml_tensor* q, ggml_tensor* appended);

}  // namespace winnow::kernels
