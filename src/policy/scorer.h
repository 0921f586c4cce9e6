// The first of a policy's five answers: how much is each row worth?
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/scratch.h"
#include "cache/rows.h"
#include "kernels/attend.h"
#include "kernels/chunk_attention.h"
#include "kernels/key_turns.h"
#include "kernels/query_moments.h"
#include "kernels/query_window.h"
#include "kernels/residual_similarity.h"
#include "kernels/rotation.h"
#include "kernels/row_formula.h"
#include "kernels/score_directions.h"
#include "policy/key_directions.h"
#include "policy/output_weights.h"
#include "roles/role.h"

namespace winnow::policy {

struct Filters;
class SecondStage;

// A second reading: once a document has been read, the model is asked to repeat it, and is fed it part by part as its own
// answer. A row is worth the greatest attention that any of these tokens pays to it (engine/replay.h).
struct Replay {
  int chunk = 0;  // tokens of the document in a part; 0: no replay
  // Each weight counts times what the row's value comes to in the layer's output, over the norm of what the token's query is
  // made of.
  bool weighs_outputs = false;

  bool is_wanted() const { return chunk > 0; }
  bool operator==(const Replay&) const = default;
};

// What a scorer reads beside the rows themselves. The engine collects that and nothing else; a policy whose needs
// cannot be met is refused before anything runs.
struct Needs {
  // Of the rows themselves, which are always there: what score() reads.
  bool keys = false;
  bool values = false;
  // Kept beside them, for the methods that ask for it.
  bool key_norms = false;  // HeadRows::scores: the squared key norm, written at append
  // HeadRows::scores: each key's projection on Scorer::score_directions(), written at append.
  bool key_projections = false;
  // HeadRows::notes: what the method itself noted of each row when it last chose.
  bool notes = false;
  // HeadRows::scores: what a replay of the row's document found.
  Replay replay = {};
  // HeadRows::scores: the weights that a row got in its chunk, summed over the queries of its group; with it, the queries of
  // the last chunk are among n_queries. One of the five at most.
  kernels::ChunkAttention chunk_attention = {};
  bool column_mass = false;  // HeadRows::mass: the softmax weights received from all queries so far
  float mass_decay = 1;      // each generated token multiplies the column mass so far with it
  bool residual_similarity = false;  // LayerView::similarity: of all prompt tokens so far
  bool query_moments = false;        // LayerView::moments: of all queries so far
  int n_queries = 0;  // LayerView::queries holds the last so many, or as many as there were
  // Keys and queries are read by window_mass() and last_query_mass() alone, so that LayerView::window does instead.
  bool asks_window_only = false;
  bool output_weights = false;  // LayerView::output_weights, read with the values
  bool unturned_keys = false;   // LayerView::turns, by which keys are turned back to position 0
  // LayerView::key_directions, found from these keys. Of two that differ, the first counts: a fork finds its own.
  KeySample key_sample = {};
  bool roles = false;  // LayerView::roles

  bool asks_keys_or_queries() const { return keys || n_queries > 0; }
  bool static_scores() const {
    return key_norms || key_projections || notes || replay.is_wanted() ||
           chunk_attention.is_wanted();
  }
  cache::StaticScore score_kind() const {
    if (replay.is_wanted()) {
      return cache::StaticScore::kReplay;
    }
    if (notes) {
      return cache::StaticScore::kNote;
    }
    if (chunk_attention.is_wanted()) {
      return cache::StaticScore::kChunkAttention;
    }
    return key_projections ? cache::StaticScore::kProjection : cache::StaticScore::kSquaredNorm;
  }

  // What either asks for. Generated tokens decay the mass as these needs say, not as the others do; of projections on two
  // methods' directions neither is kept, since forks compute theirs from the keys, nor of two replays, which forks have made
  // anew, nor notes, which begin with a fork. Of attention in chunks of two kinds the first is kept: forks that need the other
  // are refused.
  void add(const Needs& other) {
    asks_window_only = (asks_window_only || !asks_keys_or_queries()) &&
                       (other.asks_window_only || !other.asks_keys_or_queries());
    keys |= other.keys;
    values |= other.values;
    key_norms |= other.key_norms;
    column_mass |= other.column_mass;
    query_moments |= other.query_moments;
    residual_similarity |= other.residual_similarity;
    n_queries = std::max(n_queries, other.n_queries);
    output_weights |= other.output_weights;
    unturned_keys |= other.unturned_keys;
    chunk_attention = chunk_attention.is_wanted() ? chunk_attention : other.chunk_attention;
    key_sample = key_sample.n_keys > 0 ? key_sample : other.key_sample;
    roles |= other.roles;
  }
};

// For people and `winnow methods --json`: "keys", "values", "key norms", "column mass", "query moments", "residual
// similarity", "last 64 queries", "output weights", "rotation of keys", "first 128 keys", "roles", "replay in parts of 2048",
// "attention in chunks of 256".
std::vector<std::string> describe(const Needs& needs);

// One layer's rows, as attention sees them.
struct LayerView {
  int layer;
  std::span<const cache::HeadRows> heads;  // [n_kv_heads]
  // Positions below are kept whatever their scores, for methods that leave them out of what they measure. Filled in by
  // the policy.
  int n_sink = 0;
  // The positions fed so far. Of a layer whose policy needs queries, their moments or mass, the following are set too.
  int n_positions = 0;
  // What the next query is rotated to: n_positions, or less where positions are contiguous. Filled in by the policy.
  int next_rotation = 0;
  kernels::AttendShape attention = {};
  const kernels::QueryWindow* queries = nullptr;
  const kernels::WindowMass* window = nullptr;  // null: not computed yet
  const kernels::QueryMoments* moments = nullptr;
  const kernels::ResidualSimilarity* similarity = nullptr;
  const kernels::Rotation* rotation = nullptr;  // of queries and keys
  // By as many positions as keys may lag where they may, or as they are rotated to where they are wanted unturned.
  const kernels::TurnTable* turns = nullptr;
  const OutputWeights* output_weights = nullptr;
  const KeyDirections* key_directions = nullptr;
  // What the tokens at positions 0 … are there for; those behind its end are PROSE. Filled in by the policy.
  std::span<const roles::Role> roles = {};
  int ordinal = 0;  // the layer's place among those that policies cut, from 0
};

class Scorer {
 public:
  virtual ~Scorer() = default;

  virtual Needs needs() const = 0;
  // Whether a head's scores depend on the rows of the other heads of its layer.
  virtual bool looks_at_layer() const { return false; }
  // Whether a score may be below 0.
  virtual bool may_be_negative() const { return true; }
  // Whether a finite score is -r, where r is the best rank that the row has for a query head of the KV head: then the lowest
  // score that stays says how many rows each query head has chosen.
  virtual bool ranks_query_heads() const { return false; }

  // What it was made for one model from, null for methods that work with any.
  virtual const Filters* filters() const { return nullptr; }
  // What keys are projected on as they are appended, null for methods that need no projections.
  virtual const kernels::ScoreDirections* score_directions() const { return nullptr; }

  // What score() is of what lies beside rows, null for methods that read more than that.
  virtual const kernels::RowFormula* formula() const { return nullptr; }

  // Methods that take rows in one by one and let one go for each choose a head's rows themselves: how. Null for all others, of
  // which the rows with the highest scores stay. As long as the scorer lives.
  virtual const SecondStage* chooser() const { return nullptr; }

  // Whether the layer's rows can be scored already; before, none of them is evicted.
  virtual bool is_ready(const LayerView& /*layer*/) const { return true; }

  // Scores one KV head: scores [n], higher is worth more, NaN is worth least. Called for different heads at
  // the same time. Never sees the budget and protects nothing.
  virtual void score(const LayerView& layer, int kv_head, Scratch& scratch,
                     std::span<float> scores) const = 0;
};

}  // namespace winnow::policy
