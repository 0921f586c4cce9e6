// One sequence: its cached rows, its policy, and what has happened to it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "cache/cache.h"
#include "cache/remote_rows.h"
#include "engine/replay.h"
#include "kernels/page_reads.h"
#include "kernels/query_moments.h"
#include "kernels/query_window.h"
#include "kernels/residual_similarity.h"
#include "model/hyperparameters.h"
#include "policy/key_directions.h"
#include "policy/policy.h"

namespace winnow::engine {

class Evictor;

struct EvictionStats {
  int64_t count = 0;       // occasions on which rows were taken: a prompt, a chunk, a decoded token
  double ms = 0;           // time they took: score, select, move
  int64_t nan_scores = 0;  // compared, and not a number
  // Where query heads choose rows of their own: how many each has chosen, added up over all heads and cuts since the sequence
  // was made or loaded; and over how many.
  int64_t query_head_rows = 0;
  int64_t n_query_head_cuts = 0;

  // 0 where they do not, or nothing was cut.
  double mean_query_head_rows() const {
    return n_query_head_cuts == 0
               ? 0
               : static_cast<double>(query_head_rows) / static_cast<double>(n_query_head_cuts);
  }
  void add(const policy::Choice& choice, double took_ms);
};

struct Sequence {
  // The policy is resolved, or unlimited.
  Sequence(const cache::CacheShape& shape, policy::Policy chosen,
           std::shared_ptr<cache::RemoteRows> remote = nullptr)
      : cache(shape, std::move(remote)), policy(std::move(chosen)) {}

  cache::Cache cache;
  policy::Policy policy;
  kernels::QueryWindow queries;            // the last ones, if the policy needs them
  kernels::ResidualSimilarity similarity;  // of the prompts' tokens, likewise
  kernels::QueryMoments moments;           // of all of them, likewise
  policy::KeyDirections key_directions;    // of the first keys, likewise
  kernels::PageReads pages;                // what generated tokens read, likewise
  int positions_fed = 0;               // tokens ever fed: the next one's position, whatever is kept
  bool evicted_during_prompt = false;  // some prompt token attended to rows already cut
  bool is_usable = true;               // false after a cancelled or failed step: layers disagree
  EvictionStats evictions;
  double replay_ms = 0;  // that replays took

  // What the next token's query and key are rotated to.
  int next_rotation() const {
    return policy.counts_rows() ? cache.next_contiguous() : positions_fed;
  }
  // What the policy has been given to remember, beside the cache.
  size_t policy_bytes() const {
    return queries.bytes() + moments.bytes() + similarity.bytes() + key_directions.bytes() +
           pages.bytes();
  }
};

// An independent copy of a sequence whose rows lie in the host's memory, as below.
Sequence fork(const Sequence& sequence);

struct ForkOptions {
  // A resolved policy that the copy's rows are cut to at once, without room being taken for the others. None: the
  // sequence's own, and all its rows.
  std::optional<policy::Policy> policy = {};
  int max_rows = 0;  // rows a head may ever hold; 0: as many as the sequence's
  // Where rows in a device's memory are copied to; empty where they lie in the host's.
  std::function<std::shared_ptr<cache::RemoteRows>(const cache::CacheShape&)> make_rows = {};
  // Of all documents read, for Engine::fork: needed where the policy has them replayed and the sequence's own did not.
  std::vector<ReplayText> replays = {};
  // false: all rows are copied under the policy, and those of a replay are still to be found.
  bool is_cut = true;
};

// Whether the sequence's rows have the scores that the policy has a replay for.
bool has_replay_scores(const Sequence& sequence, const policy::Policy& policy);

// An independent copy: rows, policy, positions and statistics. Its peak begins with what it holds. The scores that the policy
// needs and the sequence's cache does not store are computed from the keys: the same bits. Throws invalid_argument for a sequence
// that is not usable, where more rows than max_rows would be copied, where the policy needs queries, their moments or column
// mass that the sequence's own did not, or a replay where that was another or rows are gone, and for rows in another memory than make_rows makes; resource_exhausted without address
// space for it.
Sequence fork(const Sequence& sequence, ForkOptions options, Evictor& evictor);

// Finds the directions of keys that the policy needs in layers [first_layer, first_layer + n_layers) that hold enough of them.
void freeze_directions(Sequence& sequence, int first_layer, int n_layers);

// Goes back to the first n_positions positions, as if nothing had been fed after them: the same tokens give the same
// bits again. Throws invalid_argument, and changes nothing, where a row that was held at that length has gone since, or
// may have (Cache::trim_bounds), and where the policy has taken note of the queries that would be taken back. Statistics
// stay. A sequence that became unusable is usable again.
void trim(Sequence& sequence, int n_positions);

// The cache that a policy on this model needs.
cache::CacheShape cache_shape(const model::Hyperparameters& hyper, cache::RowType key_type,
                              cache::RowType value_type, const policy::Policy& policy,
                              int max_rows);

// A window for the queries that a policy on this model needs; none where it needs none.
kernels::QueryWindow query_window(const model::Hyperparameters& hyper,
                                  const policy::Policy& policy);

// Likewise, for the moments of queries.
kernels::QueryMoments query_moments(const model::Hyperparameters& hyper,
                                    const policy::Policy& policy);

// Likewise, for how much attention changes the residual stream.
kernels::ResidualSimilarity residual_similarity(const model::Hyperparameters& hyper,
                                                const policy::Policy& policy);

// Likewise, for directions of keys.
policy::KeyDirections key_directions(const model::Hyperparameters& hyper,
                                     const policy::Policy& policy);

// Likewise, for what generated tokens read of a cache of such a shape.
kernels::PageReads page_reads(const model::Hyperparameters& hyper, const cache::CacheShape& shape,
                              const policy::Policy& policy);

// Whether a step of such a sequence needs how far its tokens are rotated (kernels::Slice::needs_turns).
bool needs_turns(const policy::Policy& policy);

// What finding the scores of a part of a replay takes; nothing where there is none.
size_t replay_bytes(const model::Hyperparameters& hyper, const cache::CacheShape& shape,
                    const policy::Policy& policy, const ReplaySize& replay, int n_threads);

// The most that these will take, beside a cache of such a shape.
size_t policy_bytes(const model::Hyperparameters& hyper, const cache::CacheShape& shape,
                    const policy::Policy& policy);

}  // namespace winnow::engine
