// One sequence: its cached rows, its policy, and what has happened to it.
#pragma once

#include <cstdint>
#include <utility>

#include "cache/cache.h"
#include "model/hyperparameters.h"
#include "policy/policy.h"

namespace winnow::engine {

struct EvictionStats {
  int64_t count = 0;  // occasions on which rows were taken: a prompt, a chunk, a decoded token
  double ms = 0;      // time they took: score, select, move
};

struct Sequence {
  // The policy is resolved, or unlimited.
  Sequence(const cache::CacheShape& shape, policy::Policy chosen)
      : cache(shape), policy(std::move(chosen)) {}

  cache::Cache cache;
  policy::Policy policy;
  int positions_fed = 0;               // tokens ever fed: the next one's position, whatever is kept
  bool evicted_during_prompt = false;  // some prompt token attended to rows already cut
  bool is_usable = true;               // false after a cancelled or failed feed: layers disagree
  EvictionStats evictions;
};

// The cache that a policy on this model needs.
cache::CacheShape cache_shape(const model::Hyperparameters& hyper, cache::RowType key_type,
                              cache::RowType value_type, const policy::Policy& policy,
                              int max_rows);

}  // namespace winnow::engine
