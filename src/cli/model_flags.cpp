#include "cli/model_flags.h"

#include <CLI/CLI.hpp>

#include "base/threads.h"
#include "cli/lost_file.h"
#include "cli/rope_flags.h"

namespace winnow::cli {

void add_model_flags(CLI::App& app, ModelFlags& flags) {
  app.add_option("-m,--model", flags.path, "the model, a GGUF file");
  app.add_option("-b,--batch-size", flags.n_batch, "most prompt tokens computed at once")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("-t,--threads", flags.n_threads, "threads; -1: one per logical processor")
      ->check(CLI::Range(-1, kMaxThreads))
      ->capture_default_str();
  app.add_option("--weights", flags.weights, "as for run, but for auto: file, prompt-bf16, ...")
      ->capture_default_str();
  app.add_option("--cache-type-k", flags.key_type, "type of cached keys: f32, f16, bf16")
      ->capture_default_str();
  app.add_option("--cache-type-v", flags.value_type, "type of cached values: f32, f16, bf16")
      ->capture_default_str();
  app.add_option("--chat-template", flags.chat_template,
                 "a template's name (chatml, llama3, …) or text");
  app.add_flag("--no-chat", flags.no_chat, "no chat template");
  app.add_flag("--allow-beyond-context", flags.allow_beyond_context,
               "permit more positions than the model was trained for");
  add_gpu_flag(app, flags.gpu_layers);
  add_rope_flags(app, flags.rope);
}

eval::ModelSettings model_settings(const ModelFlags& flags) {
  eval::ModelSettings settings;
  settings.key_type = cache::parse_row_type(flags.key_type);
  settings.value_type = cache::parse_row_type(flags.value_type);
  settings.engine.n_threads = resolve_threads(flags.n_threads);
  settings.engine.n_batch = flags.n_batch;
  settings.engine.is_on_gpu = is_on_gpu(flags.gpu_layers);
  settings.chat = {.has_template = !flags.no_chat, .chat_template = flags.chat_template};
  settings.allow_beyond_context = flags.allow_beyond_context;
  return settings;
}

model::Model load_model(const ModelFlags& flags) {
  report_lost_file();
  return {flags.path,
          {.weights = model::parse_weight_option(flags.weights),
           .n_threads = resolve_threads(flags.n_threads),
           .rope = flags.rope}};
}

}  // namespace winnow::cli
