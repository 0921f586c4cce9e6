// winnow eval: what budgets cost, measured on the same prompts under every policy.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "cli/eval_flags.h"
#include "cli/eval_report.h"
#include "cli/interrupt.h"
#include "cli/lost_file.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_report.h"
#include "cli/verbs.h"
#include "eval/results.h"
#include "eval/summary.h"
#include "model/fingerprint.h"

namespace winnow::cli {
namespace {

using nlohmann::ordered_json;

void check_given(const EvalFlags& flags) {
  const auto need = [](bool is_given, const char* what) {
    if (!is_given) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(what) + " is needed; 'winnow eval --help' lists what there is");
    }
  };
  need(!flags.tasks.empty(), "a task");
  need(!flags.model.empty(), "--model");
  need(!flags.output.empty() || !flags.dump_prompts.empty(), "--output");
}

// All that the results depend on.
ordered_json config_of(const EvalFlags& flags, const eval::Evaluation& evaluation,
                       const model::Model& model) {
  ordered_json config = {{"winnow", WINNOW_VERSION},
                         {"model",
                          {{"architecture", model.family().architecture},
                           {"fingerprint", model::fingerprint(model.file())}}},
                         {"weights", flags.weights},
                         {"rope", rope_json(model.hyper())}};
  config.update(evaluation.config());
  return config;
}

void dump_prompts(eval::Evaluation& evaluation, const std::string& path) {
  NewFile file(path);
  evaluation.dump_prompts([&](const std::string& line) {
    const std::string text = line + "\n";
    file.write(std::as_bytes(std::span(text)));
  });
  file.finish();
}

// Why samples were refused, each reason once.
std::string reasons(const eval::Summary& summary) {
  std::set<std::string> texts;
  for (const eval::Group& group : summary.groups) {
    texts.insert(group.refused.begin(), group.refused.end());
  }
  std::string list = texts.empty() ? "the shard has no sample" : "";
  for (const std::string& text : texts) {
    list += (list.empty() ? "" : "; ") + text;
  }
  return list;
}

int evaluate(const EvalFlags& flags) {
  check_given(flags);
  if (flags.is_quiet) {
    set_log_level(LogLevel::kWarning);
  }
  const eval::EvaluationOptions options = evaluation_options(flags);
  report_lost_file();
  const model::Model model(flags.model, {.weights = model::parse_weight_option(flags.weights),
                                         .n_threads = options.model.engine.n_threads,
                                         .rope = flags.rope});
  eval::Evaluation evaluation(model, options);
  if (!flags.dump_prompts.empty()) {
    dump_prompts(evaluation, flags.dump_prompts);
    return 0;
  }
  eval::Results results(flags.output, config_of(flags, evaluation, model));
  ProgressBar bar("evaluating", !flags.is_quiet);
  evaluation.run(
      results, [&bar](const eval::EvaluationProgress& progress) { bar.update(progress.fraction); },
      watch_interrupt());
  bar.clear();
  eval::Summary summary = eval::summarize(results.records(), flags.baseline);
  summary.problems = results.problems();
  const ordered_json json = eval::to_json(summary);
  results.write_summary(json);
  if (std::ranges::all_of(summary.groups, [](const eval::Group& group) { return group.n == 0; })) {
    throw Error(ErrorCode::kInvalidArgument, "nothing could be measured: " + reasons(summary));
  }
  if (flags.is_json) {
    write_output(json.dump(2) + "\n");
  } else if (!flags.is_quiet) {
    write_output(summary_text(summary));
  }
  return 0;
}

}  // namespace

Verb add_eval(CLI::App& app) {
  const auto flags = std::make_shared<EvalFlags>();
  add_eval_flags(app, *flags);
  return [flags] { return evaluate(*flags); };
}

}  // namespace winnow::cli
