#include "eval/perturbation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/hash.h"
#include "engine/case.h"

namespace winnow::eval {
namespace {

// Of the published comparison: 7 + n_tokens, its only sample of a length.
uint64_t seed_of(const SampleId& sample) {
  return sample.seed * 1000000 + 7 + static_cast<uint64_t>(sample.n_tokens) +
         1000 * static_cast<uint64_t>(sample.index);
}

int64_t row_bytes(const ModelSettings& settings) {
  const cache::CacheShape shape{.n_layers = 1,
                                .n_kv_heads = 1,
                                .head_dim = kPlantedHeadDim,
                                .key_type = settings.key_type,
                                .value_type = settings.value_type,
                                .max_rows = 1};
  return static_cast<int64_t>(shape.row_bytes());
}

engine::Case case_of(const PlantedRows& rows, const ModelSettings& settings) {
  engine::Case given;
  given.n_kv_heads = given.n_heads = 1;
  given.n_rows = given.n_queries = rows.n;
  given.head_dim = kPlantedHeadDim;
  given.key_type = settings.key_type;
  given.value_type = settings.value_type;
  given.keys = given.queries = rows.keys;
  given.values = rows.values;
  given.positions.resize(static_cast<size_t>(rows.n));
  std::iota(given.positions.begin(), given.positions.end(), 0);
  given.scale = 1 / std::sqrt(static_cast<float>(kPlantedHeadDim));
  return given;
}

void check_length(int n_tokens) {
  if (n_tokens > kMostPlantedRows) {
    throw Error(ErrorCode::kInvalidArgument, "a length of " + std::to_string(n_tokens) +
                                                 "; at most " + std::to_string(kMostPlantedRows) +
                                                 " rows can be planted");
  }
}

}  // namespace

void Perturbation::measure(const SampleId& sample, std::span<const Arm> arms,
                           const std::function<void(Record)>& done,
                           const std::atomic<bool>* cancel) {
  for (const Arm& arm : arms) {
    check_cancel(cancel);
    try {
      check_length(sample.n_tokens);
      done(measure(sample, arm));
    } catch (const Error& error) {
      refuse(sample, {&arm, 1}, error, done);
    }
  }
}

Record Perturbation::measure(const SampleId& sample, const Arm& arm) const {
  policy::Policy policy = arm.policy;
  policy.resolve({.n_document = sample.n_tokens, .row_bytes = row_bytes(settings_), .n_heads = 1});
  const bool is_full = policy.is_unlimited();
  const int budget_rows = is_full ? sample.n_tokens : policy.budget_rows();
  const uint64_t seed = seed_of(sample);
  const PlantedRows rows = planted_rows(geometry_, sample.n_tokens, budget_rows, seed);

  Record record = record_for(sample, arm);
  std::vector<uint8_t> is_kept(static_cast<size_t>(rows.n), 1);
  std::vector<float> merged;
  if (!is_full) {
    engine::CaseResult result =
        engine::score_case(case_of(rows, settings_), std::move(policy), settings_.engine.n_threads);
    is_kept = std::move(result.kept);
    merged = std::move(result.values);
    record.nan_scores = result.nan_scores;
    record.budget_rows = budget_rows;
  }
  const auto n_kept = static_cast<int>(std::ranges::count(is_kept, uint8_t{1}));
  record.id = "seed " + std::to_string(seed);
  record.prompt_hash = content_hash(std::as_bytes(std::span(rows.values)));
  record.n_prompt = record.n_document = rows.n;
  record.kept_rows = {{n_kept}};
  record.rows_evicted = rows.n - n_kept;
  record.kv_bytes = record.kv_peak_bytes = n_kept * row_bytes(settings_);
  record.kv_full_bytes = rows.n * row_bytes(settings_);
  record.is_within_budget = n_kept <= budget_rows;
  record.metrics["perturbation"] = perturbation(rows, is_kept, merged);
  return record;
}

}  // namespace winnow::eval
