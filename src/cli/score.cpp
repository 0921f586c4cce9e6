// winnow score: what policies make of keys, values and queries in a file, without a model.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/mapped_file.h"
#include "base/threads.h"
#include "cli/case_file.h"
#include "cli/output.h"
#include "cli/verbs.h"

namespace winnow::cli {
namespace {

using engine::CaseResult;
using nlohmann::ordered_json;

struct ScoreFlags {
  std::string input;
  std::string output;
  std::vector<std::string> policies;
  std::string budget;
  int n_threads = -1;
  bool is_json = false;
};

// One policy's result in numbers.
struct Summary {
  const std::string& spec;
  const CaseResult& result;

  int64_t n_rows() const { return std::ssize(result.scores); }
  int64_t n_kept() const {
    return std::accumulate(result.n_kept.begin(), result.n_kept.end(), int64_t{0});
  }
  int64_t least() const { return std::ranges::min(result.n_kept); }
  int64_t most() const { return std::ranges::max(result.n_kept); }
};

ordered_json summary_json(const Summary& summary) {
  return {{"policy", summary.spec},
          {"budget_rows", summary.result.budget_rows},
          {"kept_rows", {{"min", summary.least()}, {"max", summary.most()}}},
          {"rows_evicted", summary.n_rows() - summary.n_kept()},
          {"nan_scores", summary.result.nan_scores}};
}

std::string summary_text(const Summary& summary) {
  return summary.spec + ": keeps " + std::to_string(summary.n_kept()) + " of " +
         std::to_string(summary.n_rows()) + " rows, " + std::to_string(summary.least()) + " to " +
         std::to_string(summary.most()) + " in a KV head; " +
         std::to_string(summary.result.nan_scores) + " scores are not a number\n";
}

std::vector<policy::Policy> policies_of(const ScoreFlags& flags) {
  std::vector<policy::Policy> policies;
  for (const std::string& spec : flags.policies) {
    policies.push_back(policy::Policy::parse(spec, flags.budget));
    if (policies.back().is_unlimited()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--policy full: it keeps every row and gives none a score");
    }
  }
  return policies;
}

int score(const ScoreFlags& flags) {
  const int n_threads = resolve_threads(flags.n_threads);
  const std::vector<policy::Policy> policies = policies_of(flags);
  check_writable(flags.output, {&flags.input, 1});
  const CaseFile file = parse_case(MappedFile(flags.input).bytes(), flags.input);
  const engine::Case& content = file.content;
  std::vector<std::string> specs;
  std::vector<CaseResult> results;
  for (const policy::Policy& policy : policies) {
    specs.push_back(policy.spec());
    results.push_back(engine::score_case(content, policy, n_threads));
  }
  write_file_atomically(flags.output, format_results(file, specs, results));

  std::string text;
  ordered_json list = ordered_json::array();
  for (size_t i = 0; i < results.size(); ++i) {
    const Summary summary{.spec = specs[i], .result = results[i]};
    text += summary_text(summary);
    list.push_back(summary_json(summary));
  }
  const ordered_json json{{"input", flags.input},
                          {"output", flags.output},
                          {"n_layers", content.n_layers},
                          {"n_heads", content.n_heads},
                          {"n_kv_heads", content.n_kv_heads},
                          {"n_rows", content.n_rows},
                          {"head_dim", content.head_dim},
                          {"policies", std::move(list)}};
  write_output(flags.is_json ? json.dump(2) + "\n" : text);
  return 0;
}

}  // namespace

Verb add_score(CLI::App& app) {
  const auto flags = std::make_shared<ScoreFlags>();
  app.add_option("-i,--input", flags->input,
                 "an .npz file with K and, as policies need it, V, Q, "
                 "positions, scale, frequencies, roles")
      ->required();
  app.add_option("--policy,--method", flags->policies,
                 "a policy; several by giving the flag several times")
      ->allow_extra_args(false)
      ->required();
  app.add_option("--to,--budget", flags->budget, "budget of policies that name none");
  app.add_option(
         "-o,--output", flags->output,
         "the .npz file to write: scores, final_scores, kept, n_kept, policy and, where rows are "
         "merged, values")
      ->required();
  app.add_option("-t,--threads", flags->n_threads, "threads; -1: one per logical processor")
      ->capture_default_str();
  app.add_flag("--json", flags->is_json, "print the summary as JSON");
  return [flags] { return score(*flags); };
}

}  // namespace winnow::cli
