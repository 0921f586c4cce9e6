#include "eval/kept.h"

#include <algorithm>
#include <functional>

#include "engine/evict.h"

namespace winnow::eval {
namespace {

bool is_within_budget(const engine::Sequence& sequence, int n_uncut) {
  if (sequence.policy.is_unlimited()) {
    return true;
  }
  const policy::RowsHeld held = engine::rows_held(sequence.cache);
  const int64_t most = sequence.policy.budget_rows() + sequence.policy.slack() + n_uncut;
  return held.all <= most * held.n_layers * held.n_kv_heads;
}

// Whether all positions were fed, once, and those that are kept ascend.
bool are_positions_true(const engine::Sequence& sequence, int n_positions) {
  const cache::CacheShape& shape = sequence.cache.shape();
  bool is_true = sequence.positions_fed == n_positions;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      const std::vector<int> positions = sequence.cache.positions(layer, kv_head);
      is_true &= std::ranges::adjacent_find(positions, std::greater_equal()) == positions.end() &&
                 (positions.empty() || (positions.front() >= 0 && positions.back() < n_positions));
    }
  }
  return is_true;
}

}  // namespace

void record_kept(const engine::Sequence& sequence, const model::Hyperparameters& hyper,
                 Record& record) {
  const cache::CacheShape& shape = sequence.cache.shape();
  record.budget_rows = sequence.policy.is_unlimited() ? 0 : sequence.policy.budget_rows();
  record.kept_rows.clear();
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    std::vector<int>& rows = record.kept_rows.emplace_back();
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      rows.push_back(sequence.cache.n_cached(layer, kv_head));
    }
  }
  record.kv_bytes = static_cast<int64_t>(sequence.cache.now_bytes());
  record.kv_full_bytes = static_cast<int64_t>(shape.full_bytes(sequence.positions_fed));
  record.policy_bytes = static_cast<int64_t>(engine::policy_bytes(hyper, shape, sequence.policy));
  record.is_within_budget &= is_within_budget(sequence, 0);
  if (sequence.evictions.n_query_head_cuts > 0) {
    record.metrics["query_head_rows"] = sequence.evictions.mean_query_head_rows();
  }
}

void record_end(const engine::Sequence& sequence, int n_positions, int n_uncut, Record& record) {
  record.kv_peak_bytes = static_cast<int64_t>(sequence.cache.peak_bytes());
  record.rows_evicted = sequence.cache.rows_evicted();
  record.nan_scores = sequence.evictions.nan_scores;
  if (sequence.policy.page_rule().is_wanted()) {
    record.metrics["read_share"] = sequence.pages.tally().share();
  }
  record.evicted_during_prompt = sequence.evicted_during_prompt;
  record.is_within_budget &= is_within_budget(sequence, n_uncut);
  record.are_positions_true &= are_positions_true(sequence, n_positions);
}

}  // namespace winnow::eval
