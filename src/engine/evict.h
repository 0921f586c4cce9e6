// Evicts: score, allocate, select, compact, between graphs.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/stopwatch.h"
#include "engine/output_projection.h"
#include "engine/sequence.h"
#include "kernels/device_step.h"
#include "kernels/parallel.h"
#include "policy/schedule.h"

namespace winnow::engine {

// The rows of the layers without a window.
policy::RowsHeld rows_held(const cache::Cache& cache);

// Whether decoding, or a prompt that is cut chunk by chunk, has used up what the policy allows.
bool is_due(const policy::Policy& policy, const cache::Cache& cache);

// Whether a device chooses the rows that go, as long as none is hidden.
bool chooses_on_device(const Sequence& sequence);

// A layer, or all, of a sequence that are being cut on a device, whose books do not know yet which rows go.
struct CutUnderWay {
  Sequence* sequence = nullptr;
  std::vector<kernels::DeviceCut> heads = {};
};

class Evictor {
 public:
  // The model outlives the evictor.
  Evictor(const model::Model& model, const kernels::AttendShape& attention,
          kernels::Rotation rotation, int n_threads)
      : attention_(attention),
        turns_(std::move(rotation)),
        output_weights_(model),
        parallel_(n_threads),
        scratch_(static_cast<size_t>(n_threads)) {}

  // What a policy sees of layers [first_layer, …) of a sequence with rows [n_layers, n_kv_heads], to views: the layers
  // without a window. Policies do not decide about the others: their rows go when no query sees them any more.
  void view_layers(const Sequence& sequence, const policy::Policy& policy, int first_layer,
                   std::span<const cache::HeadRows> rows, std::vector<policy::LayerView>& views);

  // The same of all layers and rows of a sequence; until the next call of any of these.
  std::span<const policy::LayerView> view(const Sequence& sequence) {
    view(sequence, 0, sequence.cache.shape().n_layers);
    return views_;
  }

  // Cuts all layers back to the policy's budget; false where none was over it. Adds the time to the sequence's statistics.
  bool evict(Sequence& sequence);

  // For cutting a layer at a time, where others have not been read or have been cut already: the rows that each layer
  // [n_layers] keeps, once it has read n_tokens more.
  std::vector<int64_t> layer_shares(const Sequence& sequence, int n_tokens);
  // Cuts one layer back to its share, likewise. Where rows lie on a device, which is quicker to start than to finish, finish() must
  // follow before the layer is read or cut again.
  bool evict(Sequence& sequence, int layer, int64_t share);
  bool start_evicting(Sequence& sequence, int layer, int64_t share, CutUnderWay& under_way);
  void finish(CutUnderWay& under_way);

  kernels::ParallelFor& parallel() { return parallel_; }
  const kernels::Rotation& rotation() const { return turns_.rotation(); }  // of queries and keys

 private:
  void view(const Sequence& sequence, int first_layer, int n_layers);
  // Has the views look at copies of what the policy reads of rows in a device's memory.
  void fetch(Sequence& sequence, int first_layer);
  void fetch_beside_rows(const Sequence& sequence, int first_layer);
  void fetch_queries(Sequence& sequence);
  void fetch_rows(const Sequence& sequence, int first_layer);
  // merge_lost_rows() of the sequence's own rows, wherever they are.
  void merge(Sequence& sequence, const policy::LayerView& layer, int kv_head,
             std::span<const int> kept, std::span<const policy::Fold> folds, Scratch& scratch);
  // For a policy with a formula and rows in a device's memory: starts to score, select and move there. Nothing where it cannot; else
  // whether rows go.
  std::optional<bool> cut_on_device(Sequence& sequence, std::span<const int64_t> shares,
                                    CutUnderWay& under_way);
  bool carry_out(Sequence& sequence, bool is_chosen, const Stopwatch& stopwatch);

  kernels::AttendShape attention_;
  kernels::TurnTable turns_;
  OutputProjection output_weights_;
  kernels::ParallelFor parallel_;
  std::vector<cache::HeadRows> rows_;  // [n_layers, n_kv_heads]
  std::vector<policy::LayerView> views_;
  // Of rows in a device's memory.
  std::vector<int> n_fetched_;                     // [heads] slots
  std::vector<float> fetched_scores_;              // [heads, the most slots of any]
  std::vector<int64_t> fetched_mass_;              // the same
  std::vector<std::vector<int64_t>> window_mass_;  // [n_layers][n_heads, the most slots of any]
  std::vector<kernels::WindowMass> windows_;       // [n_layers]
  std::vector<std::byte> fetched_;                 // keys and values
  CutUnderWay under_way_;                          // where it is waited for at once
  std::vector<std::byte*> fetched_values_;         // [heads] where they are among these
  policy::Choice choice_;
  std::vector<Scratch> scratch_;  // [n_threads]
};

// Has the rows of `to` that were, or will be, the kept ones of this head take along what the policy merges into them (`folds`:
// where the method itself has said so, Choice::folds_of()). `layer`
// sees the rows as they were before any went; is_copied: `to` holds a copy of the kept ones alone.
// `values`: where those of `to` are, if that is a copy.
void merge_lost_rows(const policy::Policy& policy, const policy::LayerView& layer, int kv_head,
                     std::span<const int> kept, std::span<const policy::Fold> folds, bool is_copied,
                     Scratch& scratch, cache::Cache& to, std::byte* values = nullptr);

// Gives back what the windows of these layers have left behind at `last_pos`, the last position they have read.
void drop_unseen_rows(Sequence& sequence, int first_layer, int n_layers, int last_pos);

}  // namespace winnow::engine
