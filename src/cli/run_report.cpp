#include "cli/run_report.h"

#include <algorithm>
#include <climits>
#include <filesystem>
#include <string>

#include "base/memory.h"
#include "base/text.h"

namespace winnow::cli {
namespace {

using nlohmann::ordered_json;

struct RowRange {
  int low = INT_MAX;
  int high = 0;
};

enum class Layers { kGlobal, kWindowed };  // those that policies cut, those with a sliding window

RowRange kept_range(const cache::Cache& cache, Layers layers) {
  RowRange range;
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    const bool is_windowed = cache.shape().swa_window(layer) > 0;
    if (is_windowed != (layers == Layers::kWindowed)) {
      continue;
    }
    for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
      range.low = std::min(range.low, cache.n_cached(layer, kv_head));
      range.high = std::max(range.high, cache.n_cached(layer, kv_head));
    }
  }
  range.low = std::min(range.low, range.high);  // 0 where there is no such layer
  return range;
}

// What layers with a sliding window hold; they all have the same one.
ordered_json windowed_layers_json(const cache::Cache& cache) {
  const cache::CacheShape& shape = cache.shape();
  size_t rows = 0;
  int swa_window = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    swa_window = std::max(swa_window, shape.swa_window(layer));
    for (int kv_head = 0; shape.swa_window(layer) > 0 && kv_head < shape.n_kv_heads; ++kv_head) {
      rows += static_cast<size_t>(cache.n_cached(layer, kv_head));
    }
  }
  return {{"n", shape.n_windowed_layers()},
          {"swa_window", swa_window},
          {"kept_rows", kept_range(cache, Layers::kWindowed).high},
          {"bytes", rows * shape.row_bytes()}};
}

// What `value` gives for each head, as [layer][kv_head].
template <typename Value>
ordered_json per_head_json(const cache::CacheShape& shape, const Value& value) {
  ordered_json layers = ordered_json::array();
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    ordered_json heads = ordered_json::array();
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      heads.push_back(value(layer, kv_head));
    }
    layers.push_back(std::move(heads));
  }
  return layers;
}

ordered_json kept_rows_json(const cache::Cache& cache) {
  const RowRange range = kept_range(cache, Layers::kGlobal);
  return {{"min", range.low},
          {"max", range.high},
          {"per_layer", per_head_json(cache.shape(), [&](int layer, int kv_head) {
             return cache.n_cached(layer, kv_head);
           })}};
}

// Rows of one head that spans hold; the last rows and the sinks may be among them.
int n_in_spans(const std::vector<int>& positions, std::span<const policy::PositionSpan> spans) {
  return static_cast<int>(std::ranges::count_if(
      positions, [&](int pos) { return policy::span_at(spans, pos) != nullptr; }));
}

// How many rows of protected spans heads still have: fewer than policy::n_held() where some were evicted before they were
// protected.
RowRange kept_protected(const engine::Sequence& sequence) {
  const policy::Protection protection = sequence.policy.protection();
  const cache::Cache& cache = sequence.cache;
  RowRange kept;
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    for (int kv_head = 0;
         cache.shape().swa_window(layer) == 0 && kv_head < cache.shape().n_kv_heads; ++kv_head) {
      const int n = n_in_spans(cache.positions(layer, kv_head), protection.spans);
      kept.low = std::min(kept.low, n);
      kept.high = std::max(kept.high, n);
    }
  }
  kept.low = std::min(kept.low, kept.high);
  return kept;
}

// What protection holds, beside sinks and recent rows.
ordered_json protected_json(const engine::Sequence& sequence) {
  const policy::Protection protection = sequence.policy.protection();
  int64_t n_positions = 0;
  for (const policy::PositionSpan& span : protection.spans) {
    n_positions += span.end - span.begin;
  }
  const RowRange kept = kept_protected(sequence);
  return {{"positions", n_positions},
          {"least_rows", policy::n_held(protection)},
          {"kept_rows", {{"min", kept.low}, {"max", kept.high}}}};
}

ordered_json budget_json(int budget_rows) {
  return budget_rows == INT_MAX ? ordered_json(nullptr) : ordered_json(budget_rows);
}

// What heads may hold while tokens are generated.
ordered_json capacity_json(const policy::Policy& policy) {
  return policy.is_unlimited() ? ordered_json(nullptr)
                               : ordered_json(policy.budget_rows() + policy.slack());
}

// As the user would write it: 0.1, not 0.10000000149011612.
double decimal(float value) {
  return std::stod(number_text(value));
}

size_t full_cache_bytes(const engine::Sequence& sequence) {
  return sequence.cache.shape().full_bytes(sequence.positions_fed);
}

// The weights as they were loaded, and what the run's choice adds or will add.
ordered_json weights_json(const model::Model& model, const std::string& option,
                          const engine::WeightChoice& choice) {
  const bool is_chosen = choice.type != model::WeightType::kFile;
  const model::WeightType prompt = is_chosen ? choice.type : model.weight_option().type;
  const model::WeightType decode =
      model.weight_option().is_for_prompts ? model::WeightType::kFile : model.weight_option().type;
  return {{"option", option},
          {"prompt", model::weight_type_name(prompt)},
          {"decode", model::weight_type_name(decode)},
          {"expanded_bytes", is_chosen ? choice.expanded_bytes : model.expanded_bytes()},
          {"mapped_bytes", model.weights().mapped_bytes()},
          {"measured_speedup",
           choice.speedup > 0 ? ordered_json(choice.speedup) : ordered_json(nullptr)},
          {"measure_ms", choice.measure_ms},
          {"expand_ms", is_chosen ? choice.expand_ms : model.expand_ms()}};
}

// "202.5 MiB expanded to bf16 for the prompt"; empty where nothing is expanded.
std::string expansion_text(const model::Model& model, const engine::WeightChoice& choice) {
  const bool is_chosen = choice.type != model::WeightType::kFile;
  const model::WeightOption option =
      is_chosen ? model::WeightOption{.type = choice.type, .is_for_prompts = true}
                : model.weight_option();
  if (option.type == model::WeightType::kFile) {
    return "";
  }
  std::string text = format_bytes(is_chosen ? choice.expanded_bytes : model.expanded_bytes()) +
                     " expanded to " + model::weight_type_name(option.type);
  if (option.is_for_prompts) {
    text += " for the prompt";
  }
  if (is_chosen) {
    text += ", measured " + rounded_text(choice.speedup, 1) + " times as fast";
  }
  return text;
}

}  // namespace

ordered_json rope_json(const model::Hyperparameters& hyper) {
  const model::Rope& rope = hyper.rope;
  return {{"scaling", model::rope_scaling_name(rope.scaling)},
          {"freq_base", decimal(rope.freq_base)},
          {"freq_scale", decimal(rope.freq_scale)},
          {"ext_factor", decimal(rope.ext_factor)},
          {"attn_factor", decimal(rope.attn_factor)},
          {"beta_slow", decimal(rope.beta_slow)},
          {"beta_fast", decimal(rope.beta_fast)},
          {"n_ctx_orig", rope.n_ctx_orig},
          {"n_ctx_scaled", hyper.n_ctx_scaled}};
}

ordered_json plan_json(const engine::Run& run, const std::string& weights_option) {
  const engine::Session& session = run.session();
  const engine::Plan& plan = run.plan();
  const cache::CacheShape& shape = session.shape();
  ordered_json report = {{"policy", session.policy().spec()},
                         {"prefill", engine::prefill_order_name(session.order())},
                         {"budget_rows", budget_json(plan.budget_rows)},
                         {"max_rows", plan.max_rows},
                         {"peak_rows", plan.peak_rows},
                         {"row_bytes", shape.row_bytes()},
                         {"kv_bytes",
                          {{"after_prompt", plan.kv_prompt_bytes},
                           {"peak", plan.kv_peak_bytes},
                           {"full_cache", plan.kv_full_bytes}}},
                         {"policy_bytes", plan.policy_bytes},
                         {"residual_bytes", plan.footprint.residual_bytes},
                         {"compute_bytes", plan.footprint.compute_bytes()},
                         {"peak_bytes", plan.peak_bytes()},
                         {"gpu_bytes", plan.gpu_bytes},
                         {"weights", weights_json(run.model(), weights_option, run.weights())}};
  if (plan.replay.n_parts > 0) {
    report["replay"] = {{"parts", plan.replay.n_parts},
                        {"tokens", plan.replay.n_tokens},
                        {"most_tokens", plan.replay.n_most}};
  }
  return report;
}

ordered_json result_json(const model::Model& model, const std::string& weights_option,
                         const engine::Sequence& sequence, const engine::RunResult& result) {
  const cache::Cache& cache = sequence.cache;
  const cache::Cache::AppendCounts counts = cache.append_counts();
  const engine::Engine::Footprint& footprint = result.footprint;
  ordered_json report = {
      {"answer", result.answer},
      {"stop", engine::stop_reason_name(result.stop)},
      {"n_prompt", result.n_prompt},
      {"cached_tokens", result.n_cached},
      {"n_document", result.n_document},
      {"n_generated", result.n_generated},
      {"policy", sequence.policy.spec()},
      {"budget_rows", budget_json(sequence.policy.budget_rows())},
      {"capacity_rows", capacity_json(sequence.policy)},
      {"budget_extra_rows", sequence.policy.extra_rows()},
      {"protected", protected_json(sequence)},
      {"guarded_heads", sequence.policy.guarded_heads()},
      {"evict", engine::evict_when_name(result.evict)},
      {"prefill", engine::prefill_order_name(result.order)},
      {"weights", weights_json(model, weights_option, result.weights)},
      {"rope", rope_json(model.hyper())},
      {"seed", result.seed},
      {"positions_fed", sequence.positions_fed},
      {"rows_evicted", cache.rows_evicted()},
      {"evicted_during_prompt", sequence.evicted_during_prompt},
      {"kept_rows", kept_rows_json(cache)},
      {"row_bytes", cache.shape().row_bytes()},
      {"kv_bytes",
       {{"now", cache.now_bytes()},
        {"peak", cache.peak_bytes()},
        {"full_cache", full_cache_bytes(sequence)},
        {"committed", cache.committed_bytes()}}},
      {"policy_bytes", sequence.policy_bytes()},
      {"decode_read_share", sequence.pages.tally().share()},
      {"residual_bytes", footprint.residual_bytes},
      {"compute_bytes", footprint.compute_bytes()},
      {"peak_bytes", cache.peak_bytes() + sequence.policy_bytes() + footprint.total_bytes()},
      {"is_on_gpu", cache.remote() != nullptr},
      {"rss_peak_bytes", process_memory().rss_peak_bytes},
      {"values_saturated", counts.saturated},
      {"values_not_finite", counts.nonfinite_keys + counts.nonfinite_values},
      {"ttft_ms", result.ttft_ms},
      {"prefill_tok_s", result.prefill_tok_s()},
      {"decode_tok_s", result.decode_tok_s()},
      {"evictions",
       {{"count", sequence.evictions.count},
        {"ms", sequence.evictions.ms},
        {"nan_scores", sequence.evictions.nan_scores},
        {"query_head_rows", sequence.evictions.mean_query_head_rows()}}}};
  if (sequence.policy.needs().replay.is_wanted()) {
    report["replay"] = {{"ms", sequence.replay_ms}};
  }
  if (cache.shape().n_windowed_layers() > 0) {
    report["windowed_layers"] = windowed_layers_json(cache);
  }
  return report;
}

ordered_json compressed_json(const model::Model& model, const std::string& weights_option,
                             const engine::Sequence& sequence, const engine::RunResult& result,
                             const std::string& cache_path) {
  std::error_code ignored;
  const auto n_bytes = std::filesystem::file_size(cache_path, ignored);
  ordered_json report = {
      {"cache_file",
       {{"path", cache_path}, {"bytes", ignored ? ordered_json(nullptr) : ordered_json(n_bytes)}}}};
  report.update(result_json(model, weights_option, sequence, result));
  for (const char* const of_answer :
       {"answer", "stop", "cached_tokens", "n_generated", "seed", "ttft_ms", "decode_tok_s"}) {
    report.erase(of_answer);
  }
  return report;
}

ordered_json kept_json(const engine::Sequence& sequence) {
  const cache::Cache& cache = sequence.cache;
  return {{"policy", sequence.policy.spec()},
          {"positions_fed", sequence.positions_fed},
          {"kept_positions", per_head_json(cache.shape(), [&](int layer, int kv_head) {
             return cache.positions(layer, kv_head);
           })}};
}

namespace {

std::string replay_plan_text(const engine::Plan& plan) {
  const engine::ReplaySize& replay = plan.replay;
  if (replay.n_parts == 0) {
    return "";
  }
  return "  replay      " + std::to_string(replay.n_tokens) + " tokens more are read, in " +
         std::to_string(replay.n_parts) + (replay.n_parts == 1 ? " part" : " parts") +
         ", to repeat the document: two to three times the time without\n";
}

}  // namespace

std::string plan_text(const engine::Run& run) {
  const engine::Session& session = run.session();
  const engine::Plan& plan = run.plan();
  const std::string budget = plan.budget_rows == INT_MAX
                                 ? "no budget"
                                 : std::to_string(plan.budget_rows) + " rows per KV head";
  const std::string expansion = expansion_text(run.model(), run.weights());
  return "plan: " + session.policy().spec() + ", " + budget + ", " +
         engine::prefill_order_name(session.order()) + "\n" + "  KV cache    " +
         format_bytes(plan.kv_peak_bytes) + " at the peak, " + format_bytes(plan.kv_prompt_bytes) +
         " after the prompt; the full cache would be " + format_bytes(plan.kv_full_bytes) + "\n" +
         (plan.policy_bytes == 0 ? ""
                                 : "  policy      " + format_bytes(plan.policy_bytes) +
                                       " of queries that it remembers\n") +
         replay_plan_text(plan) + "  residual    " + format_bytes(plan.footprint.residual_bytes) +
         "\n" + "  computing   " + format_bytes(plan.footprint.compute_bytes()) + "\n" +
         (plan.gpu_bytes == 0 ? ""
                              : "  GPU         " + format_bytes(plan.gpu_bytes) +
                                    " at most, beside the weights\n") +
         "  peak        " + format_bytes(plan.peak_bytes()) + " beside the weights\n" +
         "  weights     " + format_bytes(run.model().weights().mapped_bytes()) + " mapped" +
         (expansion.empty() ? "" : ", " + expansion);
}

namespace {

std::string protected_text(const engine::Sequence& sequence) {
  const int64_t n_held = policy::n_held(sequence.policy.protection());
  if (n_held == 0) {
    return "";
  }
  const int n_kept = kept_protected(sequence).low;
  if (n_kept >= n_held) {
    return ", " + std::to_string(n_held) + " of them protected";
  }
  return ", " + std::to_string(n_kept) + " of " + std::to_string(n_held) +
         " protected rows among them (the others were evicted before they were protected)";
}

std::string guarded_text(const engine::Sequence& sequence) {
  const size_t n = sequence.policy.guarded_heads().size();
  return n == 0
             ? ""
             : std::to_string(n) + (n == 1 ? " KV head's filter says" : " KV heads' filters say") +
                   " too little; keys' norms score there\n";
}

// What is kept and what that takes, in two lines; a third where heads fall back.
std::string cache_text(const engine::Sequence& sequence, engine::EvictWhen evict) {
  const cache::Cache& cache = sequence.cache;
  const RowRange kept = kept_range(cache, Layers::kGlobal);
  const std::string rows = kept.low == kept.high
                               ? std::to_string(kept.low)
                               : std::to_string(kept.low) + " to " + std::to_string(kept.high);
  const double saving = cache.now_bytes() == 0 ? 1.0
                                               : static_cast<double>(full_cache_bytes(sequence)) /
                                                     static_cast<double>(cache.now_bytes());
  return sequence.policy.spec() + ": " + rows + " of " + std::to_string(sequence.positions_fed) +
         " rows per KV head kept" + protected_text(sequence) + ", " +
         std::to_string(cache.rows_evicted()) + " rows evicted (" + engine::evict_when_name(evict) +
         ")\n" + "KV cache " + format_bytes(cache.now_bytes()) + " now, " +
         format_bytes(cache.peak_bytes()) + " at the peak; the full cache is " +
         format_bytes(full_cache_bytes(sequence)) + " (" + rounded_text(saving, 1) + "x)\n" +
         guarded_text(sequence);
}

// "120 tokens read at 80 tok/s", and how many need not be.
std::string reading_text(const engine::RunResult& result) {
  const std::string cached =
      result.n_cached == 0 ? "" : std::to_string(result.n_cached) + " tokens cached, ";
  return cached + std::to_string(result.n_prompt - result.n_cached) + " tokens read at " +
         rounded_text(result.prefill_tok_s(), 0) + " tok/s";
}

std::string weights_text(const model::Model& model, const engine::WeightChoice& choice) {
  const std::string expansion = expansion_text(model, choice);
  return expansion.empty() ? "" : "\nweights: " + expansion;
}

}  // namespace

std::string result_text(const model::Model& model, const engine::Sequence& sequence,
                        const engine::RunResult& result) {
  return cache_text(sequence, result.evict) + reading_text(result) + ", " +
         std::to_string(result.n_generated) + " generated at " +
         rounded_text(result.decode_tok_s(), 1) + " tok/s; first token after " +
         rounded_text(result.ttft_ms / 1000, 2) + " s; stopped by " +
         engine::stop_reason_name(result.stop) + "; seed " + std::to_string(result.seed) +
         weights_text(model, result.weights);
}

std::string compressed_text(const model::Model& model, const engine::Sequence& sequence,
                            const engine::RunResult& result) {
  return cache_text(sequence, result.evict) + reading_text(result) +
         weights_text(model, result.weights);
}

}  // namespace winnow::cli
