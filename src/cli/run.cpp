// winnow run: a document, a question, an answer, inside a budget.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <csignal>
#include <memory>
#include <thread>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/npy.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_report.h"
#include "cli/verbs.h"
#include "engine/session.h"
#include "policy/spec.h"

namespace winnow::cli {
namespace {

// What the flags hold before they are checked.
struct RunFlags {
  std::string model;
  std::string prompt;
  std::string file;
  std::string ids;
  std::string policy;
  std::string budget;
  double compression_ratio = 0;
  std::string evict = "after-prompt";
  std::string prefill = "auto";
  std::string weights = "file";
  std::string key_type = "f16";
  std::string value_type = "f16";
  std::string chat_template;
  bool no_chat = false;
  std::string dump_kept;
  std::string dump_logits;
  bool logits_all = false;
  bool is_dry_run = false;
  bool is_json = false;
  bool is_quiet = false;
  int n_threads = -1;
  engine::SessionOptions session;

  bool has_prompt = false;
  bool has_file = false;
  bool has_ids = false;
  bool has_ratio = false;
};

constexpr int kMaxThreads = 512;  // ggml's own limit, GGML_MAX_N_THREADS

std::atomic<bool> is_interrupted{false};

// The first Ctrl-C asks for an orderly stop; a second one ends the program as usual.
void on_interrupt(int /*signal*/) {
  is_interrupted = true;
  std::signal(SIGINT, SIG_DFL);
}

int resolve_threads(int n_threads) {
  return n_threads > 0 ? n_threads
                       : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
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
    budget = policy::Budget{.unit = policy::Budget::Unit::kPercent, .amount = percent}.to_string();
    log_info("--compression-ratio " + number_text(flags.compression_ratio) + " is --budget " +
             budget);
  }
  const std::string spec = !flags.policy.empty() ? flags.policy : budget.empty() ? "full" : "knorm";
  for (const policy::GivenOption& option : policy::parse_spec(spec).options) {
    if (option.name == "budget" && !budget.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "the policy has budget=" + option.value +
                                                   " and --budget is " + budget +
                                                   "; give one of them");
    }
  }
  return policy::Policy::parse(spec, budget);
}

// "1,2,3" or "@file", separated by commas or white space.
std::vector<model::Token> parse_ids(const std::string& given, int n_vocab) {
  std::string text = given.rfind('@', 0) == 0 ? read_text_file(given.substr(1)) : given;
  std::replace(text.begin(), text.end(), ',', ' ');
  std::istringstream words(text);
  std::vector<model::Token> ids;
  std::string word;
  while (words >> word) {
    int id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc() || end != word.data() + word.size() || id < 0 || id >= n_vocab) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--ids: '" + word + "' is not a token id of this model (allowed: 0 to " +
                      std::to_string(n_vocab - 1) + ")");
    }
    ids.push_back(id);
  }
  if (ids.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--ids gives no token");
  }
  return ids;
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
    tokens.document = parse_ids(flags.ids, model.hyper().n_vocab);
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

void write_dumps(const RunFlags& flags, const engine::Session& session,
                 const engine::SessionResult& result, int n_vocab) {
  if (!flags.dump_kept.empty()) {
    write_file_atomically(flags.dump_kept, kept_json(*session.sequence()).dump() + "\n");
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

int run(RunFlags flags) {
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  engine::SessionOptions options = flags.session;
  options.engine.n_threads = resolve_threads(flags.n_threads);
  options.key_type = cache::parse_row_type(flags.key_type);
  options.value_type = cache::parse_row_type(flags.value_type);
  options.evict = engine::parse_evict_when(flags.evict);
  options.order = engine::parse_prefill_order(flags.prefill);
  options.keep_logits = !flags.dump_logits.empty();
  options.keep_all_logits = options.keep_logits && flags.logits_all;
  policy::Policy policy = choose_policy(flags);
  if (!flags.dump_kept.empty() && flags.dump_kept == flags.dump_logits) {
    throw Error(ErrorCode::kInvalidArgument,
                "--dump-kept and --dump-logits name the same file, '" + flags.dump_kept + "'");
  }
  for (const std::string& path : {flags.dump_kept, flags.dump_logits}) {
    if (!path.empty()) {
      check_writable(path);  // before an hour is spent
    }
  }

  const model::Model model(flags.model, {.weights = model::parse_weight_type(flags.weights),
                                         .n_threads = options.engine.n_threads});
  engine::Session session(model, std::move(policy), read_prompt(flags, model), options);
  if (flags.is_dry_run) {
    write_output((flags.is_json ? plan_json(session).dump(2) : plan_text(session)) + "\n");
    return 0;
  }
  std::signal(SIGINT, on_interrupt);
  ProgressBar bar("reading the prompt", !flags.is_quiet);
  const engine::SessionCallbacks callbacks{
      .progress = [&bar](double fraction) { bar.update(fraction); },
      .on_text =
          [&](const std::string& text) {
            bar.clear();
            if (!flags.is_json) {
              write_output(text);
            }
          },
      .cancel = &is_interrupted};
  const engine::SessionResult result = session.run(callbacks);
  bar.clear();
  if (flags.is_json) {
    // A token may end inside a character; JSON must not.
    write_output(
        result_json(session, result).dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
        "\n");
  } else {
    write_output("\n");
    log_info(result_text(session, result));
  }
  warn_about_values(session.sequence()->cache);
  write_dumps(flags, session, result, model.hyper().n_vocab);
  return result.stop == engine::StopReason::kCancelled ? exit_status(ErrorCode::kCancelled) : 0;
}

// An empty value is a shell variable that was not set, and not the same as no flag.
std::string refuse_empty(const std::string& text) {
  return text.empty() ? "the value is empty" : "";
}

// CLI::Range lets NaN pass, and would let the sampler see it.
std::string refuse_nan(const std::string& text) {
  return CLI::detail::to_lower(text).find("nan") == std::string::npos
             ? ""
             : "Value " + text + " is not a number";
}

std::string refuse_thread_count(const std::string& text) {
  int n_threads = 0;
  const bool is_allowed = CLI::detail::lexical_cast(text, n_threads) &&
                          (n_threads == -1 || (n_threads >= 1 && n_threads <= kMaxThreads));
  return is_allowed ? ""
                    : "Value " + text + " is neither -1 nor 1 to " + std::to_string(kMaxThreads);
}

void add_generation_flags(CLI::App& app, RunFlags& flags) {
  engine::SamplingOptions& sampling = flags.session.sampling;
  app.add_option("-n,--predict,--n-predict", flags.session.n_predict,
                 "most tokens to generate; -1: until the model ends, 0: read the prompt only")
      ->check(CLI::Range(-1, 1 << 30))
      ->capture_default_str();
  const auto add = [&app](auto& field, const char* name, auto low, auto high, const char* help) {
    app.add_option(std::string("--") + name, field, help)
        ->check(CLI::Range(low, high))
        ->check(refuse_nan)
        ->capture_default_str();
  };
  sampling.visit(add);
  app.add_option("-s,--seed", sampling.seed,
                 "seed of the sampler; -1: a random one, which is printed")
      ->check(CLI::Range(int64_t{-1}, int64_t{UINT32_MAX}))
      ->capture_default_str();
  app.add_flag("--ignore-eos", flags.session.ignore_eos, "go on after the end-of-text token");
}

void add_cache_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--policy,--method", flags.policy,
                 "eviction policy, e.g. knorm:n_sink=4,n_recent=128 (winnow methods lists them); "
                 "default: knorm with a budget, full without")
      ->check(refuse_empty);
  app.add_option("--budget", flags.budget,
                 "what the cache may hold: rows per KV head (512), share of the document (10%), "
                 "bytes (64MiB)")
      ->check(refuse_empty);
  app.add_option("--compression-ratio", flags.compression_ratio,
                 "the budget as the fraction of the document's rows to remove, 0 to below 1");
  app.add_option("--evict", flags.evict, "after-prompt, before-question or per-chunk")
      ->capture_default_str();
  app.add_option("--prefill", flags.prefill, "auto, layer-major or chunk-major")
      ->capture_default_str();
  app.add_option("--cache-type-k", flags.key_type, "type of cached keys: f32, f16, bf16")
      ->capture_default_str();
  app.add_option("--cache-type-v", flags.value_type, "type of cached values: f32, f16, bf16")
      ->capture_default_str();
}

void add_output_flags(CLI::App& app, RunFlags& flags) {
  app.add_flag("--dry-run", flags.is_dry_run, "print what the run would take, and stop");
  app.add_flag("--json", flags.is_json, "print one JSON object instead of the text (docs/cli.md)");
  app.add_option("--dump-kept", flags.dump_kept,
                 "write the kept positions of every layer and KV head as JSON")
      ->check(refuse_empty);
  CLI::Option* const dump_logits =
      app.add_option("--dump-logits", flags.dump_logits,
                     "write the logits tokens were chosen from as a .npy file [n, n_vocab]")
          ->check(refuse_empty);
  app.add_flag("--logits-all", flags.logits_all,
               "with --dump-logits: those of every prompt token as well")
      ->needs(dump_logits);
  app.add_flag("-q,--quiet", flags.is_quiet, "no summary and no progress bar");
}

}  // namespace

Verb add_run(CLI::App& app) {
  const auto flags = std::make_shared<RunFlags>();
  app.add_option("-m,--model", flags->model, "the model, a GGUF file")->required();
  CLI::Option* const prompt =
      app.add_option("-p,--prompt", flags->prompt, "the question, or the text to continue");
  CLI::Option* const file =
      app.add_option("-f,--file", flags->file, "the document, a text file; - reads standard input");
  CLI::Option* const ids = app.add_option(
      "--ids", flags->ids, "token ids instead of text: 1,2,3 or @FILE; no chat template");
  app.add_option("-c,--ctx-size", flags->session.n_ctx,
                 "most positions; 0: what the model was trained for")
      ->check(CLI::Range(0, 1 << 28))
      ->capture_default_str();
  app.add_flag("--allow-beyond-context", flags->session.allow_beyond_context,
               "permit more positions than the model was trained for");
  app.add_option("-b,--batch-size", flags->session.engine.n_batch,
                 "most prompt tokens computed at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("-t,--threads", flags->n_threads, "threads; -1: one per logical processor")
      ->check(refuse_thread_count)
      ->capture_default_str();
  app.add_option("--weights", flags->weights,
                 "multiply with weights as in the file, or expanded at load: file, f16, bf16, f32")
      ->capture_default_str();
  CLI::Option* const chat_template = app.add_option("--chat-template", flags->chat_template,
                                                    "a template's name (chatml, llama3, …) or text")
                                         ->check(refuse_empty);
  app.add_flag("--no-chat", flags->no_chat, "no chat template: continue the text as it is")
      ->excludes(chat_template);
  add_cache_flags(app, *flags);
  add_generation_flags(app, *flags);
  add_output_flags(app, *flags);
  return [&app, flags, prompt, file, ids] {
    flags->has_prompt = prompt->count() > 0;
    flags->has_file = file->count() > 0;
    flags->has_ids = ids->count() > 0;
    flags->has_ratio = app.count("--compression-ratio") > 0;
    return run(*flags);
  };
}

}  // namespace winnow::cli
