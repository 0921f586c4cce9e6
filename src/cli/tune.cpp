// winnow tune: the smallest budget that loses little on a document of the user's.

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/flag_lists.h"
#include "cli/interrupt.h"
#include "cli/model_flags.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "eval/tune.h"

namespace winnow::cli {
namespace {

using nlohmann::ordered_json;

struct TuneFlags {
  ModelFlags model;
  std::string file;
  std::string max_loss = "2%";
  std::vector<std::string> policies{"expected-attention;snapkv;keydiff;knorm"};
  int n_tuning = 40;
  int n_held_out = 0;
  uint64_t seed = 0;
  bool is_json = false;
  bool is_quiet = false;
};

// "2%" or "0.02"
double parse_share(const std::string& text) {
  const bool is_percent = text.ends_with('%');
  const std::string number = is_percent ? text.substr(0, text.size() - 1) : text;
  double value = 0;
  if (!CLI::detail::lexical_cast(number, value) || !(value > 0) ||
      !(value < (is_percent ? 100 : 1))) {
    throw Error(ErrorCode::kInvalidArgument,
                "--max-loss '" + text + "' is no share between 0 and 100 %, as in 2% or 0.02");
  }
  return is_percent ? value / 100 : value;
}

ordered_json step_json(const eval::TuneStep& step) {
  return {{"policy", step.policy},
          {"is_held_out", step.is_held_out},
          {"n_questions", step.n_questions},
          {"n_different", step.n_different},
          {"upper", step.upper},
          {"is_passed", step.is_passed}};
}

ordered_json result_json(const eval::TuneResult& result, const std::string& command) {
  ordered_json steps = ordered_json::array();
  for (const eval::TuneStep& step : result.steps) {
    steps.push_back(step_json(step));
  }
  const bool is_found = !result.policy.empty();
  return {{"policy", is_found ? ordered_json(result.policy) : ordered_json(nullptr)},
          {"command", is_found ? ordered_json(command) : ordered_json(nullptr)},
          {"loss", is_found ? ordered_json(result.loss) : ordered_json(nullptr)},
          {"loss_upper", is_found ? ordered_json(result.upper) : ordered_json(nullptr)},
          {"n_tuning", result.n_tuning},
          {"n_held_out", result.n_held_out},
          {"n_document", result.n_document},
          {"kv_bytes", result.kv_bytes},
          {"kv_full_bytes", result.kv_full_bytes},
          {"steps", std::move(steps)}};
}

std::string step_text(const eval::TuneStep& step) {
  return step.policy + ": " + std::to_string(step.n_different) + " of " +
         std::to_string(step.n_questions) + (step.is_held_out ? " held-out" : "") +
         " answers differ" + (step.is_passed ? "" : ", too many");
}

std::string result_text(const eval::TuneResult& result, const std::string& command,
                        const std::string& max_loss) {
  if (result.policy.empty()) {
    return "no policy and budget tried could be shown to lose less than " + max_loss + "\n";
  }
  return result.policy + " loses " + rounded_text(100 * result.loss, 1) + " % of " +
         std::to_string(result.n_held_out) + " held-out answers; with 95 % confidence less than " +
         rounded_text(100 * result.upper, 1) + " %\n" + "KV cache of the document " +
         format_bytes(static_cast<size_t>(result.kv_bytes)) + " instead of " +
         format_bytes(static_cast<size_t>(result.kv_full_bytes)) + "\n" + command + "\n";
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) {
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return text + "'";
}

// The flags given that compress has too: those of the model.
std::string model_flags_text(const CLI::App& app) {
  CLI::App model_app;
  ModelFlags ignored;
  add_model_flags(model_app, ignored);
  std::string text;
  for (const CLI::Option* const option : app.get_options()) {
    const std::string name = option->get_name();
    if (option->count() == 0 || name == "--model" ||
        model_app.get_option_no_throw(name) == nullptr) {
      continue;
    }
    text += " " + name;
    if (option->get_expected_max() > 0) {  // a flag has no value
      text += " " + quoted(option->results().front());
    }
  }
  // What was measured multiplied with the file's weights, where nothing else was said.
  return app.get_option("--weights")->count() > 0 ? text : text + " --weights file";
}

int run_tune(const CLI::App& app, const TuneFlags& flags) {
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  eval::TuneOptions options;
  options.max_loss = parse_share(flags.max_loss);
  options.policies = split_lists(flags.policies, "--policy", ';');
  options.n_tuning = flags.n_tuning;
  options.n_held_out = flags.n_held_out;
  options.seed = flags.seed;
  options.model = model_settings(flags.model);
  eval::check_tune_options(options);  // before a model is loaded
  const std::string document = read_text_file(flags.file);
  model::Model model = load_model(flags.model);
  load_on_gpu(flags.model.gpu_layers, model);
  const eval::TuneResult result = eval::tune(
      model, document, options, [](const eval::TuneStep& step) { log_info(step_text(step)); },
      watch_interrupt());
  const std::string command = "winnow compress -m " + quoted(flags.model.path) + " -f " +
                              quoted(flags.file) + model_flags_text(app) + " --policy " +
                              quoted(result.policy) + " -o cache.winnow";
  write_output(flags.is_json ? result_json(result, command).dump(2) + "\n"
                             : result_text(result, command, flags.max_loss));
  return 0;
}

}  // namespace

Verb add_tune(CLI::App& app) {
  const auto flags = std::make_shared<TuneFlags>();
  app.add_option("-f,--file", flags->file, "the document")->required();
  app.add_option("--max-loss", flags->max_loss,
                 "share of answers that may differ from the full cache's: 2% or 0.02")
      ->capture_default_str();
  app.add_option("--policy,--method", flags->policies, "policies to try, without a budget")
      ->capture_default_str();
  app.add_option("--tuning-questions", flags->n_tuning, "questions to choose by")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_option("--questions", flags->n_held_out,
                 "held-out questions that the loss is bounded by; 0: what there is, 300 at most")
      ->check(CLI::Range(0, 100000))
      ->capture_default_str();
  app.add_option("-s,--seed", flags->seed, "seed of the choice of questions")
      ->capture_default_str();
  app.add_flag("--json", flags->is_json, "print JSON");
  app.add_flag("-q,--quiet", flags->is_quiet, "no steps");
  add_model_flags(app, flags->model);
  app.get_option("--model")->required();
  return [&app, flags] { return run_tune(app, *flags); };
}

}  // namespace winnow::cli
