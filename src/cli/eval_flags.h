// The flags of `winnow eval` (docs/evaluation.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "eval/evaluation.h"
#include "model/model.h"

namespace CLI {
class App;
}

namespace winnow::cli {

// What the flags hold before they are checked. Lists are repeated flags, or one flag with ';' between.
struct EvalFlags {
  std::vector<std::string> tasks;
  std::string model;
  std::vector<std::string> policies;
  std::vector<std::string> budgets;
  std::vector<std::string> lengths;
  std::vector<std::string> questions;
  std::vector<std::string> files;
  std::string shard = "1/1";
  std::string baseline;
  std::string output;
  std::string dump_prompts;
  std::string weights = "file";
  std::string key_type = "f16";
  std::string value_type = "f16";
  std::string chat_template;
  bool no_chat = false;
  bool is_json = false;
  bool is_quiet = false;
  int n_threads = -1;
  model::RopeOptions rope;
  eval::EvaluationOptions evaluation;  // what needs no checking beyond the parser's
};

void add_eval_flags(CLI::App& app, EvalFlags& flags);

// Throws invalid_argument.
eval::EvaluationOptions evaluation_options(const EvalFlags& flags);

}  // namespace winnow::cli
