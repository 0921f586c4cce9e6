#include "cli/eval_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "cli/flag_lists.h"
#include "cli/policy_flags.h"
#include "eval/experiments.h"

namespace winnow::cli {
namespace {

int length_of(const std::string& text) {
  int length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (error != std::errc() || end != text.data() + text.size() || length < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "--lengths '" + text + "' is not a number of tokens of at least 1");
  }
  return length;
}

bool needs_budgets(const std::string& task) {
  const eval::ExperimentEntry* const experiment = eval::find_experiment(task);
  return experiment == nullptr || experiment->policies == eval::PolicyUse::kCut;
}

}  // namespace

void add_eval_flags(CLI::App& app, EvalFlags& flags) {
  eval::EvaluationOptions& evaluation = flags.evaluation;
  app.add_option("tasks", flags.tasks,
                 "what is asked, e.g. ppl or niah:keys=4 (winnow eval tasks lists them)");
  app.add_option("--policy,--method", flags.policies,
                 "eviction policies; the full cache is always measured too");
  app.add_option("--budgets,--budget", flags.budgets,
                 "budgets for policies that have none of their own: '10%;512'");
  app.add_option("--lengths,--context", flags.lengths,
                 "lengths of prompts in tokens, or of ppl's context: '1024;2048' (default: 1024)");
  app.add_option("-n,--n", evaluation.n, "samples of each task and length")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app.add_option("-s,--seed", evaluation.seed, "seed of the samples")->capture_default_str();
  app.add_option(
      "--question", flags.questions,
      "agnostic: the document is cut before the question is read; aware: after it; both; "
      "per-chunk: while the prompt is read; legacy-order: before the attention of each chunk, as "
      "published programs did by mistake (default: agnostic)");
  app.add_flag("--legacy-order", flags.is_legacy_order, "--question legacy-order, beside others");
  app.add_flag(
      "--legacy-offset", flags.is_legacy_offset,
      "every policy once more with positions=stalled, as published programs did by mistake");
  app.add_option("-f,--file", flags.files, "texts for tasks on real text");
  app.add_option("--target", evaluation.n_targets,
                 "ppl: tokens scored after a context that is cut once; 0: token by token, cut as "
                 "in generation")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  app.add_option("--generate", evaluation.n_generated, "drift: tokens that are generated")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  app.add_flag("--allow-looped", evaluation.allow_looped,
               "measure on text that repeats itself; the results say so");
  app.add_option("--roles", flags.roles,
                 "tasks: the documents' format (winnow roles lists them) or probe:FILE, for "
                 "policies with roles "
                 "and --by-role")
      ->capture_default_str();
  app.add_flag("--by-role", evaluation.is_by_role,
               "tasks: also what attention pays to keys, values, punctuation and so on of the "
               "document, and what policies keep of each");
  app.add_option("--shard", flags.shard, "i/k: every k-th sample from the i-th on")
      ->capture_default_str();
  app.add_option("--baseline", flags.baseline,
                 "a policy that the others are compared with too, as it is in the results");
  app.add_option("-o,--output", flags.output, "the folder of the results");
  app.add_option("--dump-prompts", flags.dump_prompts, "write the prompts as JSON lines, and stop");
  app.add_flag("--json", flags.is_json, "print summary.json instead of the tables");
  app.add_flag("-q,--quiet", flags.is_quiet, "no tables and no progress bar");
  add_model_flags(app, flags.model);
}

eval::EvaluationOptions evaluation_options(const EvalFlags& flags) {
  eval::EvaluationOptions options = flags.evaluation;
  options.tasks = split_lists(flags.tasks, "task", ';');
  std::vector<std::string> budgets = split_lists(flags.budgets, "--budgets", ';');
  if (budgets.empty() && std::ranges::none_of(options.tasks, needs_budgets)) {
    budgets.emplace_back("100%");
  }
  std::vector<std::string> specs = split_lists(flags.policies, "--policy", ';');
  for (size_t i = 0, n = specs.size(); flags.is_legacy_offset && i < n; ++i) {
    specs.push_back(with_stalled_positions(specs[i]));
  }
  options.policies = eval::make_policies(specs, budgets);
  if (!flags.lengths.empty()) {
    options.lengths.clear();
    for (const std::string& item : split_lists(flags.lengths, "--lengths", ';')) {
      options.lengths.push_back(length_of(item));
    }
  }
  std::vector<std::string> questions = split_lists(flags.questions, "--question", ';');
  if (flags.is_legacy_order) {
    questions.emplace_back(eval::question_mode_name(eval::QuestionMode::kLegacyOrder));
  }
  if (!questions.empty()) {
    options.questions.clear();
    for (const std::string& item : questions) {
      for (const eval::QuestionMode mode : eval::parse_question_modes(item)) {
        if (std::ranges::count(options.questions, mode) == 0) {
          options.questions.push_back(mode);
        }
      }
    }
  }
  options.texts = flags.files;
  options.shard = eval::parse_shard(flags.shard);
  options.model = model_settings(flags.model);
  options.model.roles = engine::RoleSource(flags.roles);
  return options;
}

}  // namespace winnow::cli
