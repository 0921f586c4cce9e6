#include "engine/admission.h"

#include <algorithm>
#include <climits>
#include <string>

#include "base/error.h"
#include "policy/filters.h"

namespace winnow::engine {
namespace {

// The most rows a head of `n_cached` rows will hold while the tokens come. After each time those of a layer with a
// window go that no token sees any more, and other heads are cut.
int most_rows(int n_cached, const Arrival& arrival, int swa_window, int n_stay) {
  const int slack = cache::CacheShape::window_slack(swa_window);
  if (swa_window > 0 && arrival.is_ragged) {
    const int n_held = std::max(n_cached, swa_window + slack - 1);
    return std::min(n_cached + arrival.n_tokens, n_held + arrival.n_batch);
  }
  int rows = n_cached;
  int most = n_cached;
  for (int fed = 0; fed < arrival.n_tokens; fed += arrival.n_batch) {
    rows += std::min(arrival.n_batch, arrival.n_tokens - fed);
    most = std::max(most, rows);
    if (swa_window == 0) {
      rows = std::min(rows, n_stay);
    } else if (rows - swa_window >= slack) {
      rows = swa_window;
    }
  }
  return most;
}

[[noreturn]] void refuse(const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument, "the sequence cannot be used: " + reason);
}

}  // namespace

std::string heads_text(int n_layers, int n_kv_heads, int head_dim) {
  return std::to_string(n_layers) + " layers with " + std::to_string(n_kv_heads) + " KV heads of " +
         std::to_string(head_dim);
}

std::string filters_problem(const policy::Policy& policy, int n_layers, int n_kv_heads,
                            int head_dim, const char* keys) {
  const policy::Filters* const filters = policy.filters();
  if (filters == nullptr ||
      (filters->shape.n_layers == n_layers && filters->shape.n_kv_heads == n_kv_heads &&
       filters->shape.head_dim == head_dim)) {
    return "";
  }
  return "has filters of " +
         heads_text(filters->shape.n_layers, filters->shape.n_kv_heads, filters->shape.head_dim) +
         ", and " + keys + " " + heads_text(n_layers, n_kv_heads, head_dim);
}

void check_suits(const policy::Policy& policy, const model::Model& model) {
  const model::Hyperparameters& hyper = model.hyper();
  if (policy.needs().replay.is_wanted() && hyper.has_windows()) {
    throw Error(ErrorCode::kUnsupported,
                "policy '" + policy.spec() +
                    "' has documents replayed, and layers of the model have a window: the replay "
                    "would push the document's last rows out of it for good");
  }
  const policy::Filters* const filters = policy.filters();
  if (filters == nullptr) {
    return;
  }
  std::string problem =
      filters_problem(policy, hyper.n_layers, hyper.n_kv_heads, hyper.head_dim, "the model has");
  if (problem.empty() && !filters->fingerprint.empty() &&
      filters->fingerprint != model.fingerprint()) {
    problem = "has filters made from another model (" + filters->model + ", fingerprint " +
              filters->fingerprint + "); this one is " + model.fingerprint();
  }
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "policy '" + policy.spec() + "' " + problem);
  }
}

void check_admissible(const Sequence& sequence, const Arrival& arrival,
                      const model::Hyperparameters& hyper) {
  const cache::CacheShape& shape = sequence.cache.shape();
  if (!sequence.is_usable) {
    refuse("an earlier step was cancelled or failed half-way");
  }
  if (shape.n_layers != hyper.n_layers || shape.n_kv_heads != hyper.n_kv_heads ||
      shape.head_dim != hyper.head_dim) {
    refuse("its cache has " + heads_text(shape.n_layers, shape.n_kv_heads, shape.head_dim) +
           ", the model " + heads_text(hyper.n_layers, hyper.n_kv_heads, hyper.head_dim));
  }
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    if (shape.swa_window(layer) != hyper.swa_window(layer)) {
      refuse("layer " + std::to_string(layer) + " has a window of " +
             std::to_string(hyper.swa_window(layer)) + " positions, in its cache " +
             std::to_string(shape.swa_window(layer)) + " (0: none)");
    }
  }
  if (!sequence.policy.is_resolved()) {
    refuse("its policy '" + sequence.policy.spec() +
           "' has a budget that depends on the prompt and is not resolved");
  }
  const policy::Needs needs = sequence.policy.needs();
  const bool lacks_scores =
      needs.static_scores() && (!shape.stores_scores || shape.score_kind != needs.score_kind());
  if (lacks_scores || (needs.column_mass && !shape.stores_mass)) {
    refuse("its policy '" + sequence.policy.spec() + "' needs " +
           (!lacks_scores                       ? "column mass"
            : needs.replay.is_wanted()          ? "scores of a replay"
            : needs.notes                       ? "notes"
            : needs.chunk_attention.is_wanted() ? "attention in chunks"
            : needs.key_projections             ? "key projections"
                                                : "key norms") +
           ", which its cache does not store");
  }
  const policy::Policy& policy = sequence.policy;
  const int64_t most_held = arrival.has_slack
                                ? policy.most_held_rows(shape.n_layers, shape.n_kv_heads)
                                : policy.most_rows(shape.n_layers, shape.n_kv_heads);
  const int n_stay =
      arrival.is_cut ? static_cast<int>(std::min<int64_t>(most_held, INT_MAX)) : INT_MAX;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      const int n_cached = sequence.cache.n_cached(layer, kv_head);
      const int most = most_rows(n_cached, arrival, shape.swa_window(layer), n_stay);
      if (most > shape.max_rows) {
        throw Error(ErrorCode::kInvalidArgument,
                    "no room for " + std::to_string(most - n_cached) + " more rows: layer " +
                        std::to_string(layer) + " holds " + std::to_string(n_cached) +
                        " of at most " + std::to_string(shape.max_rows));
      }
    }
  }
}

void check_tokens(std::span<const model::Token> tokens, int n_vocab) {
  for (const model::Token token : tokens) {
    if (token < 0 || token >= n_vocab) {
      throw Error(ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                   " is not in the vocabulary (0 … " +
                                                   std::to_string(n_vocab - 1) + ")");
    }
  }
}

}  // namespace winnow::engine
