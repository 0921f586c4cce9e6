#include "cli/run_steps.h"

#include <cmath>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/npy.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/interrupt.h"
#include "cli/lost_file.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_report.h"
#include "engine/evict.h"

namespace winnow::cli {
namespace {

// The --weights that choose by themselves.
constexpr const char* kAutoWeights = "auto";

void warn_about_values(const cache::Cache& cache) {
  const cache::Cache::AppendCounts counts = cache.append_counts();
  if (counts.saturated > 0) {
    log_warning(std::to_string(counts.saturated) + " cached elements were beyond the range of " +
                cache::row_type_name(cache.shape().key_type) + "/" +
                cache::row_type_name(cache.shape().value_type) +
                " and were stored as its largest value; --cache-type-k and --cache-type-v bf16 "
                "have the range");
  }
  if (counts.nonfinite_keys + counts.nonfinite_values > 0) {
    log_warning(std::to_string(counts.nonfinite_keys + counts.nonfinite_values) +
                " cached elements are infinite or not a number");
  }
}

// Throws invalid_argument where that is wanted.
void check_kept(const engine::Sequence& sequence, const RunFlags& flags) {
  const policy::RowsHeld held = engine::rows_held(sequence.cache);
  const int64_t n_all = int64_t{held.n_layers} * held.n_kv_heads * sequence.positions_fed;
  const double share = n_all == 0 ? 1 : static_cast<double>(held.all) / static_cast<double>(n_all);
  if (share >= flags.min_kept || flags.on_low_kept == "ignore") {
    return;
  }
  const std::string text = "policy '" + sequence.policy.spec() + "' left " +
                           rounded_text(100 * share, 1) + " % of the rows, less than --min-kept " +
                           number_text(flags.min_kept);
  if (flags.on_low_kept == "fail") {
    throw Error(ErrorCode::kInvalidArgument, text);
  }
  log_warning(text);
}

}  // namespace

engine::RunOptions run_options(const RunFlags& flags) {
  engine::RunOptions options{.session = flags.session, .generate = flags.generate};
  options.session.engine.n_threads = resolve_threads(flags.n_threads);
  options.session.key_type = cache::parse_row_type(flags.key_type);
  options.session.value_type = cache::parse_row_type(flags.value_type);
  options.session.evict = engine::parse_evict_when(flags.evict);
  options.session.order = engine::parse_prefill_order(flags.prefill);
  // Token ids come without a template, and go on without one.
  options.session.chat = {.has_template = !flags.no_chat && !flags.has_ids,
                          .chat_template = flags.chat_template};
  options.keep_logits = !flags.dump_logits.empty();
  options.keep_all_logits = options.keep_logits && flags.logits_all;
  options.session.engine.is_on_gpu = is_on_gpu(flags.gpu_layers);
  options.chooses_weights = flags.weights == kAutoWeights && !options.session.engine.is_on_gpu;
  return options;
}

std::string budget_text(const RunFlags& flags) {
  if (!flags.has_ratio) {
    return flags.budget;
  }
  if (!flags.budget.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--budget and --compression-ratio say the same; give one");
  }
  if (!(flags.compression_ratio >= 0 && flags.compression_ratio < 1)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--compression-ratio is the fraction removed, from 0 to below 1; given: " +
                    std::to_string(flags.compression_ratio));
  }
  // The field's toolkit counts what is removed. Rounded, since 1 - 0.9 is 0.09999999999999998 in binary.
  const double percent = std::round((1 - flags.compression_ratio) * 1e11) / 1e9;
  if (percent == 0) {
    throw Error(ErrorCode::kInvalidArgument, "--compression-ratio " +
                                                 number_text(flags.compression_ratio) +
                                                 " leaves less than a billionth of the document");
  }
  std::string budget =
      policy::Budget{.unit = policy::Budget::Unit::kPercent, .amount = percent}.to_string();
  log_info("--compression-ratio " + number_text(flags.compression_ratio) + " is --budget " +
           budget);
  return budget;
}

void check_outputs(const RunFlags& flags) {
  struct Output {
    const char* flag;
    const std::string& path;
  };
  const Output outputs[] = {{"--dump-kept", flags.dump_kept},
                            {"--dump-logits", flags.dump_logits},
                            {"the cache file", flags.save_cache}};
  for (const Output& output : outputs) {
    for (const Output* other = outputs; other != &output; ++other) {
      if (!output.path.empty() && !other->path.empty() && is_same_file(other->path, output.path)) {
        throw Error(ErrorCode::kInvalidArgument, std::string(other->flag) + " and " + output.flag +
                                                     " name the same file, '" + other->path + "'");
      }
    }
  }
  std::error_code ignored;
  if (!flags.is_overwriting && std::filesystem::is_regular_file(flags.save_cache, ignored)) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + flags.save_cache + "' exists; --force writes over it");
  }
  const std::string read[] = {flags.model, flags.file};  // a cache file may take its own place
  for (const Output& output : outputs) {
    if (!output.path.empty()) {
      check_writable(output.path, read);
    }
  }
}

model::Model load_model(const RunFlags& flags, const engine::RunOptions& options) {
  report_lost_file();
  return {flags.model,
          {.weights = flags.weights == kAutoWeights
                          ? model::WeightOption{}
                          : model::parse_weight_option(flags.weights, kAutoWeights),
           .n_threads = options.session.engine.n_threads,
           .rope = flags.rope}};
}

engine::RunResult carry_out(engine::Run& run, const RunFlags& flags) {
  ProgressBar bar("reading the prompt", !flags.is_quiet);
  const engine::RunCallbacks callbacks{
      .progress = [&bar](double fraction) { bar.update(fraction); },
      .on_text =
          [&](const std::string& text) {
            bar.clear();
            if (!flags.is_json) {
              write_output(text);
            }
          },
      .cancel = watch_interrupt()};
  engine::RunResult result = run.run(callbacks);
  bar.clear();
  return result;
}

void finish(const engine::Run& run, const RunFlags& flags, const engine::RunResult& result) {
  const engine::Sequence& sequence = *run.session().sequence();
  warn_about_values(sequence.cache);
  check_kept(sequence, flags);
  if (!flags.dump_kept.empty()) {
    write_file_atomically(flags.dump_kept, kept_json(sequence).dump() + "\n");
  }
  if (!flags.dump_logits.empty()) {
    write_npy(flags.dump_logits, result.logits, static_cast<size_t>(run.model().hyper().n_vocab));
  }
  if (!flags.save_cache.empty()) {
    run.session().save(flags.save_cache);
    std::error_code ignored;
    const auto n_bytes = std::filesystem::file_size(flags.save_cache, ignored);
    if (!ignored) {  // a pipe has none
      log_info("cache written to '" + flags.save_cache + "', " + format_bytes(n_bytes));
    }
  }
}

int status_of(const engine::RunResult& result) {
  return result.stop == engine::StopReason::kCancelled ? exit_status(ErrorCode::kCancelled) : 0;
}

}  // namespace winnow::cli
