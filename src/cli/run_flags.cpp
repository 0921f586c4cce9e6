#include "cli/run_flags.h"

#include <CLI/CLI.hpp>

#include "base/files.h"
#include "base/threads.h"
#include "cli/policy_flags.h"
#include "cli/rope_flags.h"

namespace winnow::cli {
namespace {

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

void add_input_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("-m,--model", flags.model, "the model, a GGUF file")->required();
  app.add_option("-f,--file", flags.file, "the document, a text file; - reads standard input");
  app.add_option("--system,--system-prompt", flags.system,
                 "the system message, before the first turn");
  app.add_option("--ids", flags.ids, "token ids instead of text: 1,2,3 or @FILE; no chat template");
  app.add_option("-c,--ctx-size", flags.session.n_ctx,
                 "most positions; 0: what the model was trained for")
      ->check(CLI::Range(0, 1 << 28))
      ->capture_default_str();
  app.add_flag("--allow-beyond-context", flags.session.allow_beyond_context,
               "permit more positions than the model was trained for");
  app.add_option("-b,--batch-size", flags.session.engine.n_batch,
                 "most prompt tokens computed at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("-t,--threads", flags.n_threads, "threads; -1: one per logical processor")
      ->check(refuse_thread_count)
      ->capture_default_str();
  app.add_option("--weights", flags.weights,
                 "multiply with weights as in the file, or expanded at load: file, f16, bf16, f32; "
                 "prompt-f16, prompt-bf16, prompt-f32: expanded for the prompt only; auto: "
                 "prompt-bf16 or prompt-f16 where, as measured, that pays and memory allows")
      ->capture_default_str();
  CLI::Option* const chat_template = app.add_option("--chat-template", flags.chat_template,
                                                    "a template's name (chatml, llama3, …) or text")
                                         ->check(refuse_empty);
  app.add_flag("--no-chat", flags.no_chat, "no chat template: continue the text as it is")
      ->excludes(chat_template);
}

void add_generation_flags(CLI::App& app, RunFlags& flags) {
  engine::SamplingOptions& sampling = flags.generate.sampling;
  app.add_option("-n,--predict,--n-predict", flags.generate.n_predict,
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
  app.add_flag("--ignore-eos", flags.generate.ignore_eos, "go on after the end-of-text token");
}

void add_cache_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("--min-kept", flags.min_kept,
                 "the share of rows that should be left in the end: 0.9; 0: any")
      ->check(CLI::Range(0.0, 1.0))
      ->check(refuse_nan)
      ->capture_default_str();
  app.add_option("--on-low-kept", flags.on_low_kept, "where fewer are: warn, fail or ignore")
      ->check(CLI::IsMember({"warn", "fail", "ignore"}))
      ->capture_default_str();
  app.add_option(
         "--policy,--method", flags.policy,
         "eviction policy, e.g. knorm+adakv:n_sink=4,n_recent=128 (winnow methods lists them); "
         "auto: by when rows are evicted and whether there is a question; default: auto with a "
         "budget, "
         "full without")
      ->check(refuse_empty);
  app.add_option("--budget", flags.budget,
                 "what the cache may hold: rows per KV head (512), share of the document (10%), "
                 "bytes (64MiB)")
      ->check(refuse_empty);
  app.add_option("--compression-ratio", flags.compression_ratio,
                 "the budget as the fraction of the document's rows to remove, 0 to below 1")
      ->check(refuse_empty);
  const auto add_each = [&app](const char* name, std::vector<std::string>& texts,
                               const char* help) {
    app.add_option(name, texts, help)
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->check(refuse_empty);
  };
  add_each("--protect-text", flags.protect_text,
           "keep every token of the document that overlaps a match of a regular expression; "
           "REGEX@8 or REGEX@50%: at least so much of each match");
  add_each("--protect-tokens", flags.protect_tokens,
           "keep the document's tokens a:b, a: or :b, below 0 from its end; a:b@8 or a:b@50%: at "
           "least so many of them");
  app.add_option("--roles", flags.roles,
                 "the document is structured: its format (winnow roles lists them) or probe:FILE, "
                 "for policies "
                 "with roles, which auto then takes")
      ->capture_default_str();
  app.add_option("--prefill", flags.prefill, "auto, layer-major or chunk-major")
      ->capture_default_str();
  app.add_option("--cache-type-k", flags.key_type, "type of cached keys: f32, f16, bf16")
      ->capture_default_str();
  app.add_option("--cache-type-v", flags.value_type, "type of cached values: f32, f16, bf16")
      ->capture_default_str();
}

void add_output_flags(CLI::App& app, RunFlags& flags) {
  app.add_flag("--force", flags.is_overwriting, "write the cache over a file that exists");
  app.add_flag("--dry-run", flags.is_dry_run, "print what the run would take, and stop");
  app.add_flag("--json", flags.is_json, "print one JSON object instead of the text (docs/cli.md)");
  app.add_option("--dump-kept", flags.dump_kept,
                 "write the kept positions of every layer and KV head as JSON")
      ->check(refuse_empty);
  app.add_flag("-q,--quiet", flags.is_quiet, "no summary and no progress bar");
}

void add_logits_flags(CLI::App& app, RunFlags& flags) {
  CLI::Option* const dump_logits =
      app.add_option("--dump-logits", flags.dump_logits,
                     "write the logits tokens were chosen from as a .npy file [n, n_vocab]")
          ->check(refuse_empty);
  app.add_flag("--logits-all", flags.logits_all,
               "with --dump-logits: those of every prompt token as well")
      ->needs(dump_logits);
}

}  // namespace

std::string RunFlags::ids_text() const {
  return ids.starts_with('@') ? read_text_file(ids.substr(1)) : ids;
}

engine::DocumentPins RunFlags::pins() const {
  return engine::parse_pins(protect_text, protect_tokens);
}

void add_run_flags(CLI::App& app, RunFlags& flags) {
  app.add_option("-p,--prompt", flags.prompt, "the question, or the text to continue");
  app.add_option("--cache", flags.cache,
                 "go on from a cache file: policy, types and template are the file's")
      ->check(refuse_empty);
  CLI::Option* const evict =
      app.add_option("--evict", flags.evict,
                     "after-prompt, before-question or per-chunk; with --cache, as in the file")
          ->capture_default_str();
  app.add_flag("--legacy-order")
      ->description(
          "evict before each chunk's own attention, as published programs did by mistake: to "
          "reproduce their results only; short for --evict legacy-order")
      ->excludes(evict);
  app.add_flag("--legacy-offset", flags.is_legacy_offset,
               "once rows go, rotate new tokens to the number of rows kept, as published programs "
               "did by mistake: to reproduce their results only; short for positions=stalled");
  app.add_option("--save-cache", flags.save_cache, "write the cache to a file in the end")
      ->check(refuse_empty);
  add_input_flags(app, flags);
  add_gpu_flag(app, flags.gpu_layers);
  add_rope_flags(app, flags.rope);
  add_cache_flags(app, flags);
  add_generation_flags(app, flags);
  add_output_flags(app, flags);
  add_logits_flags(app, flags);
}

void add_compress_flags(CLI::App& app, RunFlags& flags) {
  flags.evict = "before-question";
  flags.generate.n_predict = 0;
  app.add_option("-o,--output", flags.save_cache, "the cache file to write")
      ->required()
      ->check(refuse_empty);
  app.add_option("--evict", flags.evict, "before-question: once all is read, or per-chunk")
      ->capture_default_str();
  add_input_flags(app, flags);
  add_rope_flags(app, flags.rope);
  add_cache_flags(app, flags);
  add_output_flags(app, flags);
}

void note_given_flags(const CLI::App& app, RunFlags& flags) {
  const auto is_given = [&app](const char* name) {
    const CLI::Option* const option = app.get_option_no_throw(name);
    return option != nullptr && option->count() > 0;
  };
  flags.has_prompt = is_given("--prompt");
  flags.has_system = is_given("--system");
  flags.has_file = is_given("--file");
  flags.has_ids = is_given("--ids");
  flags.has_ratio = is_given("--compression-ratio");
  if (is_given("--legacy-order")) {
    flags.evict = engine::evict_when_name(engine::EvictWhen::kLegacyOrder);
  }
  if (flags.is_legacy_offset) {
    flags.policy = with_stalled_positions(flags.policy.empty() ? "auto" : flags.policy);
  }
  flags.has_evict = is_given("--evict") || is_given("--legacy-order");
  flags.has_roles = is_given("--roles");
  flags.has_key_type = is_given("--cache-type-k");
  flags.has_value_type = is_given("--cache-type-v");
}

}  // namespace winnow::cli
