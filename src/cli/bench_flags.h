// The flags of `winnow bench`: lists, whose cross product is measured (docs/cli.md).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/gpu_flags.h"
#include "engine/benchmark.h"
#include "model/model.h"
#include "policy/policy.h"

namespace CLI {
class App;
}

namespace winnow::cli {

// What the flags hold before they are checked: each time a list was given, its text.
struct BenchFlags {
  std::vector<std::string> models;
  std::vector<std::string> weights{"file"};
  std::vector<std::string> threads{"-1"};
  std::vector<std::string> batches{"512"};
  std::vector<std::string> key_types{"f16"};
  std::vector<std::string> value_types{"f16"};
  std::vector<std::string> policies;
  std::vector<std::string> budgets;
  std::vector<std::string> evictions{"after-prompt"};
  std::vector<std::string> orders{"auto"};
  std::vector<std::string> sequences{"1"};
  std::vector<std::string> depths{"0"};
  std::vector<std::string> prompts{"512"};
  std::vector<std::string> answers{"128"};
  int n_repetitions = 5;
  bool allow_beyond_context = false;
  std::string gpu_layers = kNoGpuLayers;
  model::RopeOptions rope;
  std::string format = "md";
  bool is_json = false;
};

// One combination of everything but the tests.
struct BenchSetting {
  std::string model;
  model::WeightOption weights;
  policy::Policy policy = policy::Policy::full();
  engine::BenchmarkOptions options = {};
};

// Adds the flags to the parser, which writes into `flags` when it parses.
void add_bench_flags(CLI::App& app, BenchFlags& flags);

// The cross product, models outermost, so that each is loaded as rarely as can be. Throws invalid_argument for an empty
// item, a value that is not allowed, or too many combinations.
std::vector<BenchSetting> bench_settings(const BenchFlags& flags);

// What is measured in every setting: prompts first. Throws invalid_argument where that is nothing.
std::vector<engine::BenchmarkTest> bench_tests(const BenchFlags& flags);

}  // namespace winnow::cli
