// What `winnow bench` says about its runs. The fields are documented in docs/cli.md and stay stable.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_flags.h"
#include "engine/benchmark.h"

namespace winnow::cli {

// What the machine can do with so many threads; 0: not known.
struct Peaks {
  double read_bytes_s = 0;
  double operations_s = 0;
};

struct BenchRun {
  const model::Model& model;
  const std::string& fingerprint;
  const BenchSetting& setting;
  const engine::BenchmarkTest& test;
  engine::PrefillOrder order;
  const engine::BenchmarkResult& result;
  const Peaks& peaks;
};

// A run as a flat or nested object: one line of JSON lines.
nlohmann::ordered_json bench_json(const BenchRun& run);

// Prints runs as they come, in one of the formats md, json, jsonl, csv. Throws io.
class BenchOutput {
 public:
  // Columns of a Markdown table say what is not at its default in any of `settings`.
  BenchOutput(std::string_view format, const std::vector<BenchSetting>& settings);

  void add(const nlohmann::ordered_json& run, const BenchSetting& setting);
  void finish();  // completes a JSON array

 private:
  std::string table_row(const nlohmann::ordered_json& run, const BenchSetting& setting);

  std::string format_;
  std::vector<size_t> columns_;  // of options, those shown
  int n_runs_ = 0;
};

}  // namespace winnow::cli
