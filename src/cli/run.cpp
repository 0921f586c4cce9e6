// winnow run: a document, a question, an answer, inside a budget.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/npy.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/lost_file.h"
#include "cli/output.h"
#include "cli/policy_flags.h"
#include "cli/progress.h"
#include "cli/run_flags.h"
#include "cli/run_report.h"
#include "cli/token_ids.h"
#include "cli/verbs.h"
#include "engine/run.h"

namespace winnow::cli {
namespace {

// The --weights that choose by themselves.
constexpr const char* kAutoWeights = "auto";

std::atomic<bool> is_interrupted{false};

// The first Ctrl-C asks for an orderly stop; a second one ends the program as usual.
void on_interrupt(int /*signal*/) {
  is_interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

policy::Policy choose_policy(const RunFlags& flags) {
  std::string budget = flags.budget;
  if (flags.has_ratio) {
    if (!budget.empty()) {
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
    budget = policy::Budget{.unit = policy::Budget::Unit::kPercent, .amount = percent}.to_string();
    log_info("--compression-ratio " + number_text(flags.compression_ratio) + " is --budget " +
             budget);
  }
  return make_policy(flags.policy, budget);
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::weakly_canonical(a, ignored) ==
         std::filesystem::weakly_canonical(b, ignored);
}

engine::PromptTokens read_prompt(const RunFlags& flags, const model::Model& model) {
  if (flags.has_ids) {
    if (flags.has_prompt || flags.has_file) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--ids takes the place of -p and -f; give one or the other");
    }
    if (flags.no_chat || !flags.chat_template.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--ids has no chat template, so --no-chat and --chat-template say nothing");
    }
    engine::PromptTokens tokens;
    tokens.document = parse_token_ids(
        flags.ids.starts_with('@') ? read_text_file(flags.ids.substr(1)) : flags.ids,
        model.hyper().n_vocab);
    return tokens;
  }
  engine::PromptText text{.document = std::nullopt,
                          .question = std::nullopt,
                          .has_chat_template = !flags.no_chat,
                          .chat_template = flags.chat_template};
  if (flags.has_file) {
    text.document = read_text_file(flags.file);
  }
  if (flags.has_prompt) {
    text.question = flags.prompt;
  }
  return engine::tokenize_prompt(model, text);
}

void write_dumps(const RunFlags& flags, const engine::Sequence& sequence,
                 const engine::RunResult& result, int n_vocab) {
  if (!flags.dump_kept.empty()) {
    write_file_atomically(flags.dump_kept, kept_json(sequence).dump() + "\n");
  }
  if (!flags.dump_logits.empty()) {
    write_npy(flags.dump_logits, result.logits, static_cast<size_t>(n_vocab));
  }
}

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

int answer(const RunFlags& flags) {
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  engine::RunOptions options{.session = flags.session, .generate = flags.generate};
  options.session.engine.n_threads = resolve_threads(flags.n_threads);
  options.session.key_type = cache::parse_row_type(flags.key_type);
  options.session.value_type = cache::parse_row_type(flags.value_type);
  options.session.evict = engine::parse_evict_when(flags.evict);
  options.session.order = engine::parse_prefill_order(flags.prefill);
  options.keep_logits = !flags.dump_logits.empty();
  options.keep_all_logits = options.keep_logits && flags.logits_all;
  if (options.session.evict == engine::EvictWhen::kBeforeQuestion &&
      !(flags.has_file && flags.has_prompt)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--evict before-question needs a document (-f) and a question (-p)");
  }
  policy::Policy policy = choose_policy(flags);
  if (!flags.dump_kept.empty() && !flags.dump_logits.empty() &&
      is_same_file(flags.dump_kept, flags.dump_logits)) {
    throw Error(ErrorCode::kInvalidArgument,
                "--dump-kept and --dump-logits name the same file, '" + flags.dump_kept + "'");
  }
  for (const std::string& path : {flags.dump_kept, flags.dump_logits}) {
    if (!path.empty()) {
      check_writable(path);  // before an hour is spent
    }
  }

  options.chooses_weights = flags.weights == kAutoWeights;

  report_lost_file();
  model::Model model(
      flags.model,
      {.weights = options.chooses_weights ? model::WeightOption{}
                                          : model::parse_weight_option(flags.weights, kAutoWeights),
       .n_threads = options.session.engine.n_threads,
       .rope = flags.rope});
  engine::Run run(model, std::move(policy), read_prompt(flags, model), options);
  if (!run.weights().advice.empty()) {
    log_info(run.weights().advice);
  }
  if (flags.is_dry_run) {
    write_output((flags.is_json ? plan_json(run, flags.weights).dump(2) : plan_text(run)) + "\n");
    return 0;
  }
  std::signal(SIGINT, on_interrupt);
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
      .cancel = &is_interrupted};
  const engine::RunResult result = run.run(callbacks);
  const engine::Sequence& sequence = *run.session().sequence();
  bar.clear();
  if (flags.is_json) {
    // A token may end inside a character; JSON must not.
    write_output(result_json(model, flags.weights, sequence, result)
                     .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                 "\n");
  } else {
    write_output("\n");
    log_info(result_text(model, sequence, result));
  }
  warn_about_values(sequence.cache);
  write_dumps(flags, sequence, result, model.hyper().n_vocab);
  return result.stop == engine::StopReason::kCancelled ? exit_status(ErrorCode::kCancelled) : 0;
}

}  // namespace

Verb add_run(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  add_run_flags(app, *flags);
  return [&app, flags] {
    note_given_flags(app, *flags);
    return answer(*flags);
  };
}

}  // namespace winnow::cli
