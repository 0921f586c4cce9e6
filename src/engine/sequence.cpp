#include "engine/sequence.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/stopwatch.h"
#include "engine/evict.h"
#include "engine/replay_scores.h"
#include "kernels/append.h"
#include "kernels/device_step.h"

namespace winnow::engine {
namespace {

void check_usable(const Sequence& sequence) {
  if (!sequence.is_usable) {
    throw Error(ErrorCode::kInvalidArgument,
                "the sequence cannot be forked: an earlier step was cancelled or failed half-way");
  }
}

void check_place(const Sequence& sequence, const ForkOptions& options) {
  if ((sequence.cache.remote() != nullptr) != static_cast<bool>(options.make_rows)) {
    throw Error(ErrorCode::kInvalidArgument,
                "the rows of a fork lie where those of the sequence do: both in the host's memory, "
                "or both in a GPU's");
  }
}

// Whether all positions that were fed have a row in every head that policies cut.
bool holds_all_rows(const Sequence& sequence) {
  const cache::CacheShape& shape = sequence.cache.shape();
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; shape.swa_window(layer) == 0 && kv_head < shape.n_kv_heads; ++kv_head) {
      if (sequence.cache.rows(layer, kv_head).n_visible() != sequence.positions_fed) {
        return false;
      }
    }
  }
  return true;
}

// A replay can be made up for as long as all rows are there.
void check_replayable(const Sequence& sequence, const policy::Policy& policy, bool is_cut) {
  if (!policy.needs().replay.is_wanted() || has_replay_scores(sequence, policy)) {
    return;
  }
  std::string problem;
  if (!holds_all_rows(sequence)) {
    problem = "has documents replayed with the full cache, and the sequence did not keep all rows";
  } else if (is_cut && sequence.positions_fed > 0) {
    problem = "has documents replayed before rows go, and none was given to replay";
  }
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "policy '" + policy.spec() + "' " + problem +
                                                 " under its own policy '" +
                                                 sequence.policy.spec() + "'");
  }
}

// What only attention leaves behind cannot be made up for later.
void check_seen(const Sequence& sequence, const policy::Policy& policy) {
  const policy::Needs needs = policy.needs();
  std::string missing;
  if (needs.n_queries > sequence.queries.shape().n_queries) {
    missing = "the last " + std::to_string(needs.n_queries) + " queries";
  } else if (needs.column_mass && !sequence.cache.shape().stores_mass) {
    missing = "the column mass of attention";
  } else if (needs.query_moments && sequence.moments.shape().n_heads == 0) {
    missing = "the moments of all queries";
  } else if (needs.residual_similarity && sequence.similarity.is_empty()) {
    missing = "what attention changes in the residual stream";
  } else if (needs.chunk_attention.is_wanted() &&
             needs.chunk_attention != sequence.policy.needs().chunk_attention) {
    missing = "attention in chunks of " + std::to_string(needs.chunk_attention.length) +
              (needs.chunk_attention.is_scaled ? ", scaled" : "");
  }
  if (!missing.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() + "' needs " + missing +
                    ", which the sequence did not keep under its own policy '" +
                    sequence.policy.spec() + "'");
  }
}

// Has views of the heads of a layer whose rows lie in a device's memory look at copies of the keys that directions are found from,
// where these are all there.
std::vector<std::byte> copy_first_keys(const cache::Cache& cache, const policy::KeySample& sample,
                                       int layer, std::span<cache::HeadRows> heads) {
  std::vector<std::byte> copies;
  if (cache.remote() == nullptr || std::ranges::any_of(heads, [&](const cache::HeadRows& rows) {
        return rows.n < sample.n_keys;
      })) {
    return copies;
  }
  const size_t key_bytes = cache.shape().key_bytes();
  const auto n_of = [&](const cache::HeadRows& rows) {
    return sample.takes_block ? rows.n : sample.n_keys;
  };
  size_t n_bytes = 0;
  for (const cache::HeadRows& rows : heads) {
    n_bytes += static_cast<size_t>(n_of(rows)) * key_bytes;
  }
  copies.resize(n_bytes);
  std::byte* next = copies.data();
  for (int kv_head = 0; kv_head < std::ssize(heads); ++kv_head) {
    cache::HeadRows& rows = heads[static_cast<size_t>(kv_head)];
    static_cast<kernels::DeviceRows&>(*cache.remote())
        .read(layer, kv_head, n_of(rows), next, nullptr);
    rows.keys = next;
    next += static_cast<size_t>(n_of(rows)) * key_bytes;
  }
  return copies;
}

// The directions that the policy needs: the sequence's own, or found now that no row has gone. Empty where it needs none.
policy::KeyDirections directions_for(const Sequence& sequence, const policy::Policy& policy,
                                     std::vector<cache::HeadRows> rows) {
  const policy::KeySample sample = policy.needs().key_sample;
  if (sample.n_keys == 0 || sequence.key_directions.shape().sample == sample) {
    return sample.n_keys == 0 ? policy::KeyDirections() : sequence.key_directions;
  }
  const cache::CacheShape& shape = sequence.cache.shape();
  policy::KeyDirections directions({.n_layers = shape.n_layers,
                                    .n_kv_heads = shape.n_kv_heads,
                                    .head_dim = shape.head_dim,
                                    .sample = sample});
  const auto n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    if (shape.swa_window(layer) > 0) {
      continue;
    }
    const auto heads = std::span(rows).subspan(static_cast<size_t>(layer) * n_kv_heads, n_kv_heads);
    if (std::ranges::any_of(heads, [&](const cache::HeadRows& head) {
          return head.n != sequence.positions_fed || head.n_hidden > 0;
        })) {
      throw Error(ErrorCode::kInvalidArgument,
                  "policy '" + policy.spec() +
                      "' needs a direction of the first keys, and the sequence did not keep all "
                      "rows under its own policy '" +
                      sequence.policy.spec() + "'");
    }
    const auto copies = copy_first_keys(sequence.cache, sample, layer, heads);
    directions.freeze(layer, heads);
  }
  return directions;
}

// Keys that were rotated to other positions than their own would have to be turned for ever.
void check_rotations(const Sequence& sequence, const policy::Policy& policy) {
  if (sequence.policy.is_stalled() && sequence.cache.rows_evicted() > 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() + "': under the sequence's own policy '" +
                    sequence.policy.spec() +
                    "' rows were read at other positions than their own, and which is not kept");
  }
  if (policy.is_contiguous() || !sequence.policy.is_contiguous()) {
    return;
  }
  for (int layer = 0; layer < sequence.cache.shape().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < sequence.cache.shape().n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, kv_head);
      if (!std::equal(rows.rotations, rows.rotations + rows.n, rows.positions)) {
        throw Error(ErrorCode::kInvalidArgument,
                    "policy '" + policy.spec() +
                        "' has positions=original, but under the sequence's own policy '" +
                        sequence.policy.spec() +
                        "' some rows were read at other positions than their own");
      }
    }
  }
}

// Policies decide about the layers without a window.
std::vector<bool> watched_layers(const model::Hyperparameters& hyper) {
  std::vector<bool> is_watched;
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    is_watched.push_back(hyper.swa_window(layer) == 0);
  }
  return is_watched;
}

kernels::QueryWindow::Shape window_shape(const model::Hyperparameters& hyper,
                                         const policy::Policy& policy) {
  return {.n_heads = hyper.n_heads,
          .head_dim = hyper.head_dim,
          .n_queries = policy.needs().n_queries,
          .is_watched = watched_layers(hyper)};
}

kernels::QueryMoments::Shape moments_shape(const model::Hyperparameters& hyper) {
  return {
      .n_heads = hyper.n_heads, .head_dim = hyper.head_dim, .is_watched = watched_layers(hyper)};
}

kernels::PageReads::Shape page_shape(const model::Hyperparameters& hyper,
                                     const cache::CacheShape& shape, const policy::Policy& policy) {
  const int n_kept =
      policy.is_unlimited() ? shape.max_rows : std::min(policy.budget_rows(), shape.max_rows);
  return {.n_layers = hyper.n_layers,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .key_type = shape.key_type,
          .rule = policy.page_rule().settled(n_kept, hyper.head_dim),
          .is_watched = watched_layers(hyper)};
}

// Views of all heads [n_layers, n_kv_heads].
std::vector<cache::HeadRows> all_rows(const cache::Cache& cache) {
  std::vector<cache::HeadRows> rows;
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
      rows.push_back(cache.rows(layer, kv_head));
    }
  }
  return rows;
}

// Whether the static scores in the sequence's cache are those that the policy needs.
bool stores_scores_of(const Sequence& sequence, const policy::Policy& policy) {
  if (policy.needs().replay.is_wanted()) {
    return has_replay_scores(sequence, policy);
  }
  if (policy.needs().notes) {  // the fork writes its own
    return false;
  }
  if (policy.needs().chunk_attention.is_wanted()) {  // check_seen()
    return true;
  }
  const kernels::ScoreDirections* const stored = sequence.policy.score_directions();
  const kernels::ScoreDirections* const needed = policy.score_directions();
  return sequence.cache.shape().stores_scores &&
         sequence.cache.shape().score_kind == policy.needs().score_kind() &&
         (stored == needed || (stored != nullptr && needed != nullptr && *stored == *needed));
}

// Has the views `rows` [n_layers, n_kv_heads] show the static scores that the policy needs, which lie in `scores`; none where
// it needs none.
void compute_static_scores(const Sequence& sequence, const policy::Policy& policy, Evictor& evictor,
                           std::vector<std::vector<float>>& scores,
                           std::vector<cache::HeadRows>& rows) {
  const int n_kv_heads = sequence.cache.shape().n_kv_heads;
  const bool goes_on = &sequence.policy.method() == &policy.method();  // from its notes
  const kernels::ScoreDirections* const directions = policy.score_directions();
  const bool is_wanted = policy.needs().static_scores();
  std::vector<Scratch> scratch(static_cast<size_t>(evictor.parallel().n_threads()));
  evictor.parallel().run(static_cast<int>(rows.size()), [&](int item, int thread) {
    const auto head = static_cast<size_t>(item);
    const float* const notes = goes_on ? rows[head].notes : nullptr;
    rows[head].scores = nullptr;
    rows[head].notes = nullptr;
    rows[head].score_kind = policy.needs().score_kind();
    if (!is_wanted) {
      return;
    }
    scores[head].resize(static_cast<size_t>(rows[head].n));
    if (policy.needs().replay.is_wanted()) {  // is yet to come
      std::ranges::fill(scores[head], std::numeric_limits<float>::infinity());
    } else if (policy.needs().notes) {
      std::ranges::fill(scores[head], cache::kNotNoted);
      if (notes != nullptr) {
        std::copy_n(notes, scores[head].size(), scores[head].begin());
      }
      rows[head].notes = scores[head].data();
    } else if (directions == nullptr) {
      kernels::static_scores(rows[head], {}, scores[head]);
    } else {
      kernels::project_keys(rows[head], *directions, item / n_kv_heads, item % n_kv_heads,
                            &evictor.rotation(), scratch[static_cast<size_t>(thread)],
                            scores[head]);
    }
    rows[head].scores = scores[head].data();
  });
}

policy::KeptSlots held_slots(const std::vector<cache::HeadRows>& rows) {
  policy::KeptSlots slots;
  for (const cache::HeadRows& head : rows) {
    std::vector<int>& held = slots.emplace_back();
    for (int slot = 0; slot < head.n; ++slot) {
      if (!head.is_evicted(slot)) {
        held.push_back(slot);
      }
    }
  }
  return slots;
}

// What a copy is to be.
struct CopyTarget {
  policy::Policy policy;
  int max_rows;
  policy::KeyDirections directions;
  const ForkOptions& options;
};

// The rows `slots` of the views `rows`, both [n_layers, n_kv_heads], as a sequence.
Sequence copy(const Sequence& sequence, CopyTarget target, const std::vector<cache::HeadRows>& rows,
              const policy::KeptSlots& slots) {
  cache::CacheShape shape = sequence.cache.shape();
  const policy::Needs needs = target.policy.needs();
  shape.stores_scores = needs.static_scores();
  shape.score_kind = needs.score_kind();
  shape.stores_mass = needs.column_mass;
  shape.stores_output_norms = needs.output_weights;
  shape.stores_rotations = target.policy.is_contiguous();
  shape.max_rows = target.max_rows;
  for (const auto& head : slots) {
    if (std::ssize(head) > target.max_rows) {
      throw Error(ErrorCode::kInvalidArgument,
                  "no room for " + std::to_string(head.size()) + " rows in a fork of at most " +
                      std::to_string(target.max_rows) + " rows per KV head");
    }
  }
  std::shared_ptr<cache::RemoteRows> remote;
  if (shape.is_remote) {
    remote = target.options.make_rows(shape);
    remote->copy_beside(*sequence.cache.remote());
  }
  Sequence fork(shape, std::move(target.policy), std::move(remote));
  if (needs.n_queries > 0) {
    fork.queries = sequence.queries;
  }
  if (needs.residual_similarity) {
    fork.similarity = sequence.similarity;
  }
  if (needs.query_moments) {
    fork.moments = sequence.moments;
  }
  fork.key_directions = std::move(target.directions);
  fork.positions_fed = sequence.positions_fed;
  fork.evicted_during_prompt = sequence.evicted_during_prompt;
  fork.evictions = sequence.evictions;
  for (size_t head = 0; head < rows.size(); ++head) {
    const auto n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
    fork.cache.copy_kept(sequence.cache, static_cast<int>(head / n_kv_heads),
                         static_cast<int>(head % n_kv_heads), slots[head], rows[head].scores);
  }
  fork.cache.record_peak();
  return fork;
}

// Of rows in a device's memory: all of them are copied there, and then cut.
Sequence cut_copy(const Sequence& sequence, const ForkOptions& options, int max_rows,
                  Evictor& evictor) {
  const auto rows = all_rows(sequence.cache);
  Sequence fork = copy(sequence,
                       {.policy = *options.policy,
                        .max_rows = std::max(max_rows, sequence.cache.longest_slots()),
                        .directions = directions_for(sequence, *options.policy, rows),
                        .options = options},
                       rows, held_slots(rows));
  fork.evictions.count += options.is_cut && evictor.evict(fork) ? 1 : 0;
  return fork;
}

}  // namespace

void EvictionStats::add(const policy::Choice& choice, double took_ms) {
  nan_scores += choice.n_nan_scores();
  ms += took_ms;
  query_head_rows = std::accumulate(choice.query_head_rows.begin(), choice.query_head_rows.end(),
                                    query_head_rows);
  n_query_head_cuts += std::ssize(choice.query_head_rows);
}

bool has_replay_scores(const Sequence& sequence, const policy::Policy& policy) {
  return sequence.cache.shape().stores_scores &&
         sequence.policy.needs().replay == policy.needs().replay &&
         sequence.policy.options().n_sink == policy.options().n_sink;
}

cache::CacheShape cache_shape(const model::Hyperparameters& hyper, cache::RowType key_type,
                              cache::RowType value_type, const policy::Policy& policy,
                              int max_rows) {
  return {.n_layers = hyper.n_layers,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .key_type = key_type,
          .value_type = value_type,
          .max_rows = max_rows,
          .stores_scores = policy.needs().static_scores(),
          .score_kind = policy.needs().score_kind(),
          .stores_mass = policy.needs().column_mass,
          .stores_output_norms = policy.needs().output_weights,
          .stores_rotations = policy.is_contiguous(),
          .swa_windows = hyper.swa_windows};
}

kernels::QueryWindow query_window(const model::Hyperparameters& hyper,
                                  const policy::Policy& policy) {
  return policy.needs().n_queries > 0 ? kernels::QueryWindow(window_shape(hyper, policy))
                                      : kernels::QueryWindow();
}

kernels::QueryMoments query_moments(const model::Hyperparameters& hyper,
                                    const policy::Policy& policy) {
  return policy.needs().query_moments ? kernels::QueryMoments(moments_shape(hyper))
                                      : kernels::QueryMoments();
}

kernels::ResidualSimilarity residual_similarity(const model::Hyperparameters& hyper,
                                                const policy::Policy& policy) {
  return kernels::ResidualSimilarity(policy.needs().residual_similarity ? hyper.n_layers : 0);
}

policy::KeyDirections key_directions(const model::Hyperparameters& hyper,
                                     const policy::Policy& policy) {
  return policy::KeyDirections({.n_layers = hyper.n_layers,
                                .n_kv_heads = hyper.n_kv_heads,
                                .head_dim = hyper.head_dim,
                                .sample = policy.needs().key_sample});
}

void freeze_directions(Sequence& sequence, int first_layer, int n_layers) {
  if (sequence.key_directions.is_empty()) {
    return;
  }
  const cache::CacheShape& shape = sequence.cache.shape();
  std::vector<cache::HeadRows> rows;
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    if (shape.swa_window(layer) > 0 || sequence.key_directions.is_frozen(layer)) {
      continue;
    }
    rows.clear();
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      rows.push_back(sequence.cache.rows(layer, kv_head));
    }
    const auto copies =
        copy_first_keys(sequence.cache, sequence.key_directions.shape().sample, layer, rows);
    sequence.key_directions.freeze(layer, rows);
  }
}

kernels::PageReads page_reads(const model::Hyperparameters& hyper, const cache::CacheShape& shape,
                              const policy::Policy& policy) {
  if (!policy.page_rule().is_wanted()) {  // asked before every token
    return {};
  }
  const kernels::PageReads::Shape pages = page_shape(hyper, shape, policy);
  return pages.rule.is_wanted() ? kernels::PageReads(pages) : kernels::PageReads();
}

bool needs_turns(const policy::Policy& policy) {
  const kernels::ScoreDirections* const directions = policy.score_directions();
  return policy.needs().query_moments || (directions != nullptr && directions->is_before_rotation);
}

size_t replay_bytes(const model::Hyperparameters& hyper, const cache::CacheShape& shape,
                    const policy::Policy& policy, const ReplaySize& replay, int n_threads) {
  return replay.n_parts == 0
             ? 0
             : ReplayScores::bytes(shape, hyper.n_heads,
                                   {.n_sink = policy.options().n_sink,
                                    .begin = 0,
                                    .end = replay.n_most_scored,
                                    .first_pos = 0,
                                    .n_tokens = replay.n_most,
                                    .weighs_outputs = policy.needs().replay.weighs_outputs},
                                   n_threads);
}

size_t policy_bytes(const model::Hyperparameters& hyper, const cache::CacheShape& shape,
                    const policy::Policy& policy) {
  return kernels::QueryWindow::bytes(window_shape(hyper, policy)) +
         (policy.needs().query_moments ? kernels::QueryMoments::bytes(moments_shape(hyper)) : 0) +
         residual_similarity(hyper, policy).bytes() + key_directions(hyper, policy).bytes() +
         kernels::PageReads::bytes(
             page_shape(hyper, shape, policy),
             cache::Cache::most_slots(shape.kept_rows > 0 ? shape.kept_rows : shape.max_rows));
}

Sequence fork(const Sequence& sequence) {
  check_usable(sequence);
  const ForkOptions options;
  check_place(sequence, options);
  const auto rows = all_rows(sequence.cache);
  return copy(sequence,
              {.policy = sequence.policy,
               .max_rows = sequence.cache.shape().max_rows,
               .directions = sequence.key_directions,
               .options = options},
              rows, held_slots(rows));
}

Sequence fork(const Sequence& sequence, ForkOptions options, Evictor& evictor) {
  check_usable(sequence);
  if (options.max_rows < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "a fork of " + std::to_string(options.max_rows) + " rows; at least 0 are needed");
  }
  check_place(sequence, options);
  const int max_rows = options.max_rows > 0 ? options.max_rows : sequence.cache.shape().max_rows;
  auto rows = all_rows(sequence.cache);
  if (!options.policy) {
    return copy(sequence,
                {.policy = sequence.policy,
                 .max_rows = max_rows,
                 .directions = sequence.key_directions,
                 .options = options},
                rows, held_slots(rows));
  }
  if (!options.policy->is_resolved()) {
    throw Error(ErrorCode::kInvalidArgument, "policy '" + options.policy->spec() +
                                                 "' has a budget that depends on the prompt and "
                                                 "must be resolved before a fork is cut to it");
  }
  check_seen(sequence, *options.policy);
  check_replayable(sequence, *options.policy, options.is_cut);
  check_rotations(sequence, *options.policy);
  if (sequence.cache.remote() != nullptr) {
    return cut_copy(sequence, options, max_rows, evictor);
  }
  const Stopwatch stopwatch;
  std::vector<std::vector<float>> scores(rows.size());
  if (!stores_scores_of(sequence, *options.policy)) {
    compute_static_scores(sequence, *options.policy, evictor, scores, rows);
  }
  policy::KeptSlots slots = held_slots(rows);
  std::vector<policy::LayerView> views;
  evictor.view_layers(sequence, *options.policy, 0, rows, views);
  policy::KeyDirections directions = directions_for(sequence, *options.policy, rows);
  for (policy::LayerView& view : views) {
    view.key_directions = &directions;
  }
  policy::Choice choice;
  const bool is_cut = options.is_cut && options.policy->choose(views, evictor.parallel(), choice);
  const auto n_kv_heads = static_cast<size_t>(sequence.cache.shape().n_kv_heads);
  for (size_t i = 0; is_cut && i < choice.kept.size(); ++i) {
    const auto layer = static_cast<size_t>(views[i / n_kv_heads].layer);
    slots[layer * n_kv_heads + i % n_kv_heads] = choice.kept[i];
  }
  Sequence fork = copy(sequence,
                       {.policy = *options.policy,
                        .max_rows = max_rows,
                        .directions = directions,
                        .options = options},
                       rows, slots);
  if (is_cut && fork.policy.merges()) {
    std::vector<Scratch> scratch(static_cast<size_t>(evictor.parallel().n_threads()));
    evictor.parallel().run(static_cast<int>(choice.kept.size()), [&](int item, int thread) {
      const auto head = static_cast<size_t>(item);
      merge_lost_rows(fork.policy, views[head / n_kv_heads], static_cast<int>(head % n_kv_heads),
                      choice.kept[head], choice.folds_of(head), /*is_copied=*/true,
                      scratch[static_cast<size_t>(thread)], fork.cache);
    });
  }
  if (is_cut) {
    ++fork.evictions.count;
    fork.evictions.add(choice, stopwatch.ms());
  }
  return fork;
}

void trim(Sequence& sequence, int n_positions) {
  const int n_fed = sequence.positions_fed;
  const std::string trimming = "cannot trim to " + std::to_string(n_positions) + " positions: ";
  if (n_positions < 0 || n_positions > n_fed) {
    throw Error(ErrorCode::kInvalidArgument, trimming + "the sequence has been fed " +
                                                 std::to_string(n_fed) + " (allowed: 0 … " +
                                                 std::to_string(n_fed) + ")");
  }
  const policy::Needs needs = sequence.policy.needs();
  const bool has_watched = needs.n_queries > 0 || needs.column_mass || needs.query_moments ||
                           needs.residual_similarity || needs.key_sample.takes_block;
  if (has_watched && n_positions > 0 && (n_positions < n_fed || !sequence.is_usable)) {
    throw Error(ErrorCode::kInvalidArgument,
                trimming + "policy '" + sequence.policy.spec() +
                    "' has taken note of later tokens (allowed: 0" +
                    (sequence.is_usable ? " and " + std::to_string(n_fed) : "") + ")");
  }
  if (const auto missing = sequence.cache.missing_row(n_positions)) {
    const cache::Cache::TrimBounds bounds = sequence.cache.trim_bounds();
    std::string allowed = "0 … " + std::to_string(bounds.intact);
    if (bounds.settled <= n_fed) {
      allowed += " and " + std::to_string(bounds.settled) + " … " + std::to_string(n_fed);
    }
    throw Error(ErrorCode::kInvalidArgument,
                trimming + "layer " + std::to_string(missing->layer) + ", KV head " +
                    std::to_string(missing->kv_head) + " has lost the row of position " +
                    std::to_string(missing->pos) +
                    (sequence.policy.merges() ? ", or changed it" : "") + " (allowed: " + allowed +
                    ")");
  }
  sequence.cache.trim(n_positions);
  sequence.pages = {};
  if (n_positions < needs.key_sample.n_keys) {
    sequence.key_directions = {};
  }
  if (n_positions == 0) {
    sequence.queries = {};
    sequence.moments = {};
    sequence.similarity = {};
  }
  sequence.positions_fed = n_positions;
  sequence.evicted_during_prompt &= sequence.cache.has_gaps();
  sequence.is_usable = true;
}

}  // namespace winnow::engine
