// The flags of `winnow eval` (docs/evaluation.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/model_flags.h"
#include "eval/evaluation.h"

namespace CLI {
class App;
}

namespace winnow::cli {

// What the flags hold before they are checked. Lists are repeated flags, or one flag with ';' between.
struct EvalFlags {
  std::vector<std::string> tasks;
  ModelFlags model;
  std::vector<std::string> policies;
  std::vector<std::string> budgets;
  std::vector<std::string> lengths;
  std::vector<std::string> questions;
  bool is_legacy_order = false;
  bool is_legacy_offset = false;
  std::vector<std::string> files;
  std::string roles = "auto";
  std::string shard = "1/1";
  std::string baseline;
  std::string output;
  std::string dump_prompts;
  bool is_json = false;
  bool is_quiet = false;
  eval::EvaluationOptions evaluation;  // what needs no checking beyond the parser's
};

void add_eval_flags(CLI::App& app, EvalFlags& flags);

// Throws invalid_argument.
eval::EvaluationOptions evaluation_options(const EvalFlags& flags);

}  // namespace winnow::cli
