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
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/run_report.h"
#include "cli/verbs.h"
#include "eval/experiments.h"
#include "eval/merge.h"
#include "eval/results.h"
#include "eval/summary.h"
#include "eval/tasks.h"
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
  need(!flags.output.empty() || !flags.dump_prompts.empty(), "--output");
}

// All that the results depend on.
ordered_json config_of(const EvalFlags& flags, const eval::Evaluation& evaluation,
                       const model::Model* model) {
  ordered_json config = {{"winnow", WINNOW_VERSION}, {"model", nullptr}};
  if (model != nullptr) {
    config["model"] = {{"architecture", model->family().architecture},
                       {"fingerprint", model->fingerprint()}};
    config["weights"] = flags.model.weights;
    config["rope"] = rope_json(model->hyper());
    if (is_on_gpu(flags.model.gpu_layers)) {  // which rounds differently
      config["is_on_gpu"] = true;
    }
  }
  config.update(evaluation.config());
  return config;
}

void dump_prompts(eval::Evaluation& evaluation, const std::string& path) {
  if (!evaluation.has_prompts()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--dump-prompts writes the prompts of tasks that ask questions");
  }
  NewFile file(path);
  evaluation.dump_prompts([&](const std::string& line) {
    const std::string text = line + "\n";
    file.write(std::as_bytes(std::span(text)));
  });
  file.finish();
}

void print_summary(const eval::Summary& summary, bool is_json) {
  write_output(is_json ? eval::to_json(summary).dump(2) + "\n" : summary_text(summary));
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
  // A model cannot be moved.
  const std::unique_ptr<model::Model> model(
      flags.model.path.empty() ? nullptr : new model::Model(load_model(flags.model)));
  if (model != nullptr) {
    load_on_gpu(flags.model.gpu_layers, *model);
  }
  eval::Evaluation evaluation(model.get(), options);
  if (!flags.dump_prompts.empty()) {
    dump_prompts(evaluation, flags.dump_prompts);
    return 0;
  }
  eval::Results results(flags.output, config_of(flags, evaluation, model.get()));
  ProgressBar bar("evaluating", !flags.is_quiet);
  evaluation.run(
      results, [&bar](const eval::EvaluationProgress& progress) { bar.update(progress.fraction); },
      watch_interrupt());
  bar.clear();
  eval::Summary summary = eval::summarize(results.records(), flags.baseline);
  summary.problems = results.problems();
  results.write_summary(eval::to_json(summary));
  if (std::ranges::all_of(summary.groups, [](const eval::Group& group) { return group.n == 0; })) {
    throw Error(ErrorCode::kInvalidArgument, "nothing could be measured: " + reasons(summary));
  }
  if (!flags.is_quiet) {
    print_summary(summary, flags.is_json);
  }
  return 0;
}

struct MergeFlags {
  std::vector<std::string> folders;
  std::string output;
  std::string baseline;
  bool is_json = false;
};

int merge(const MergeFlags& flags) {
  print_summary(eval::merge(flags.folders, flags.output, flags.baseline), flags.is_json);
  return 0;
}

Verb add_merge(CLI::App& app) {
  const auto flags = std::make_shared<MergeFlags>();
  app.add_option("folders", flags->folders, "the shards' folders")->required();
  app.add_option("-o,--output", flags->output, "the folder of all results")->required();
  app.add_option("--baseline", flags->baseline, "as for eval");
  app.add_flag("--json", flags->is_json, "print summary.json instead of the tables");
  return [flags] { return merge(*flags); };
}

ordered_json option_json(const policy::OptionDescription& option) {
  return {{"name", option.name},
          {"type", option.type},
          {"default", option.default_value},
          {"range", option.range},
          {"help", option.help}};
}

// The tasks that there are, with their options.
int list_tasks(bool is_json) {
  ordered_json tasks = ordered_json::array();
  std::string text;
  for (const eval::ExperimentEntry& entry : eval::kExperiments) {
    text += std::string(entry.name) + "\n    " + std::string(entry.help) + "\n";
    tasks.push_back(
        {{"name", entry.name}, {"help", entry.help}, {"options", ordered_json::array()}});
  }
  for (const eval::TaskEntry& entry : eval::kTasks) {
    ordered_json options = ordered_json::array();
    text += std::string(entry.name) + "\n    " + std::string(entry.help) + "\n";
    for (const policy::OptionDescription& option : eval::describe_options(entry)) {
      text += "    " + option.name + "=" + option.default_value + "  " + option.help +
              (option.range.empty() ? "" : " (" + option.range + ")") + "\n";
      options.push_back(option_json(option));
    }
    tasks.push_back({{"name", entry.name}, {"help", entry.help}, {"options", std::move(options)}});
  }
  write_output(is_json ? tasks.dump(2) + "\n" : text);
  return 0;
}

Verb add_tasks(CLI::App& app) {
  const auto is_json = std::make_shared<bool>(false);
  app.add_flag("--json", *is_json, "print JSON");
  return [is_json] { return list_tasks(*is_json); };
}

}  // namespace

Verb add_eval(CLI::App& app) {
  const auto flags = std::make_shared<EvalFlags>();
  add_eval_flags(app, *flags);
  CLI::App* const merging = app.add_subcommand("merge", "put the results of shards together");
  CLI::App* const listing = app.add_subcommand("tasks", "list the tasks and their options");
  return [flags, merging, listing, merge = add_merge(*merging), list = add_tasks(*listing)] {
    if (merging->parsed()) {
      return merge();
    }
    return listing->parsed() ? list() : evaluate(*flags);
  };
}

}  // namespace winnow::cli
