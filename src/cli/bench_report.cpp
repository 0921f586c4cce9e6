#include "cli/bench_report.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <functional>

#include "base/memory.h"
#include "base/processor.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/run_report.h"
#include "cli/statistics.h"
#include "engine/work.h"
#include "kernels/machine_speed.h"

namespace winnow::cli {
namespace {

using engine::BenchmarkTest;
using engine::Repetition;
using nlohmann::ordered_json;

template <typename Value>
std::vector<double> each(const std::vector<Repetition>& repetitions, const Value& value) {
  std::vector<double> values;
  for (const Repetition& repetition : repetitions) {
    values.push_back(static_cast<double>(value(repetition)));
  }
  return values;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

ordered_json build_json() {
  return {{"version", WINNOW_VERSION},
          {"compiler", __VERSION__},
          {"ggml", ggml_version()},
          {"instruction_set", kernels::instruction_set()}};
}

ordered_json machine_json() {
  const Processor machine = processor();
  return {{"cpu", machine.name},
          {"n_processors", machine.n_logical},
          {"cache_bytes", machine.cache_bytes}};
}

ordered_json evictions_json(const std::vector<Repetition>& repetitions) {
  const int64_t count = repetitions.back().n_evictions;
  const double ms = median(each(repetitions, [](const Repetition& r) { return r.eviction_ms; }));
  return {{"count", count},
          {"ms", ms},
          {"ms_per_occasion",
           count > 0 ? ordered_json(ms / static_cast<double>(count)) : ordered_json(nullptr)}};
}

// Of the steps of all repetitions; nulls where the test is a prompt.
ordered_json steps_json(const std::vector<Repetition>& repetitions) {
  std::vector<double> ms;
  for (const Repetition& repetition : repetitions) {
    ms.insert(ms.end(), repetition.step_ms.begin(), repetition.step_ms.end());
  }
  if (ms.empty()) {
    return {{"median", nullptr}, {"p95", nullptr}, {"max", nullptr}};
  }
  return {{"median", median(ms)}, {"p95", percentile(ms, 0.95)}, {"max", percentile(ms, 1)}};
}

// A speed beside the machine's; null where the test is not of that kind, or the machine's is not known.
ordered_json share_json(const char* unit, bool is_measured, double speed, double peak) {
  const ordered_json none = nullptr;
  return {{unit, is_measured ? ordered_json(speed / 1e9) : none},
          {std::string("peak_") + unit, peak > 0 ? ordered_json(peak / 1e9) : none},
          {"share", is_measured && peak > 0 ? ordered_json(speed / peak) : none}};
}

// Columns that a table has where the option is not at its default in every run.
struct Column {
  const char* name;
  std::string (*value)(const BenchSetting& setting);
};

constexpr std::array kColumns{
    Column{"weights",
           [](const BenchSetting& s) { return std::string(model::weight_option_name(s.weights)); }},
    Column{"n_batch",
           [](const BenchSetting& s) { return std::to_string(s.options.engine.n_batch); }},
    Column{"type_k",
           [](const BenchSetting& s) { return std::string(row_type_name(s.options.key_type)); }},
    Column{"type_v",
           [](const BenchSetting& s) { return std::string(row_type_name(s.options.value_type)); }},
    Column{"evict",
           [](const BenchSetting& s) {
             return std::string(engine::evict_when_name(s.options.evict));
           }},
    Column{"prefill",
           [](const BenchSetting& s) {
             return s.options.order ? std::string(engine::prefill_order_name(*s.options.order))
                                    : std::string("auto");
           }},
    Column{"n_sequences",
           [](const BenchSetting& s) { return std::to_string(s.options.n_sequences); }},
};

std::string params_text(double n_params) {
  return n_params >= 1e9 ? rounded_text(n_params / 1e9, 2) + " B"
                         : rounded_text(n_params / 1e6, 2) + " M";
}

// Objects become columns with dots in their names; a list stays one field.
void flatten(const ordered_json& object, const std::string& prefix,
             const std::function<void(const std::string&, const ordered_json&)>& visit) {
  for (const auto& [key, value] : object.items()) {
    const std::string name = prefix.empty() ? key : prefix + "." + key;
    if (value.is_object()) {
      flatten(value, name, visit);
    } else {
      visit(name, value);
    }
  }
}

// File names need not be UTF-8; JSON must.
std::string json_text(const ordered_json& run, int indent) {
  return run.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string csv_field(const ordered_json& value) {
  const std::string text = value.is_string() ? value.get<std::string>()
                           : value.is_null() ? std::string()
                                             : value.dump();
  std::string quoted = "\"";
  for (const char letter : text) {
    quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  }
  return quoted + "\"";
}

std::string csv_line(const ordered_json& run, bool is_header) {
  std::string line;
  flatten(run, "", [&](const std::string& name, const ordered_json& value) {
    line += (line.empty() ? "" : ",") + csv_field(is_header ? ordered_json(name) : value);
  });
  return line + "\n";
}

}  // namespace

ordered_json bench_json(const BenchRun& run) {
  const engine::BenchmarkOptions& options = run.setting.options;
  const std::vector<Repetition>& repetitions = run.result.repetitions;
  const Repetition& last = repetitions.back();
  const bool is_prompt = run.test.kind == BenchmarkTest::Kind::kPrompt;
  const double n_tokens = static_cast<double>(run.test.n_tokens) * options.n_sequences;
  const auto tok_s = each(
      repetitions, [&](const Repetition& r) { return n_tokens * 1e9 / static_cast<double>(r.ns); });
  const auto ms = each(repetitions, [](const Repetition& r) { return r.first_token_ns / 1e6; });
  const double seconds = n_tokens / median(tok_s);
  const ordered_json none = nullptr;
  std::vector<int64_t> samples_ns;
  for (const Repetition& repetition : repetitions) {
    samples_ns.push_back(repetition.ns);
  }
  return {
      {"test", engine::test_name(run.test, options.depth)},
      {"test_time", utc_now()},
      {"build", build_json()},
      {"machine", machine_json()},
      {"model_filename", run.setting.model},
      {"model_architecture", run.model.hyper().architecture},
      {"model_fingerprint", run.fingerprint},
      {"model_size", engine::tensor_bytes(run.model)},
      {"model_n_params", engine::n_params(run.model)},
      {"weights", model::weight_option_name(run.setting.weights)},
      {"weights_bytes",
       {{"mapped", run.model.weights().mapped_bytes()}, {"expanded", run.model.expanded_bytes()}}},
      {"rope", rope_json(run.model.hyper())},
      {"n_threads", options.engine.n_threads},
      {"n_batch", options.engine.n_batch},
      {"type_k", row_type_name(options.key_type)},
      {"type_v", row_type_name(options.value_type)},
      {"policy", run.setting.policy.spec()},
      {"budget_rows",
       run.result.budget_rows == INT_MAX ? none : ordered_json(run.result.budget_rows)},
      {"evict", engine::evict_when_name(options.evict)},
      {"prefill", engine::prefill_order_name(run.order)},
      {"n_sequences", options.n_sequences},
      {"n_depth", options.depth},
      {"n_prompt", is_prompt ? run.test.n_tokens : 0},
      {"n_gen", is_prompt ? 0 : run.test.n_tokens},
      {"repetitions", repetitions.size()},
      {"prefill_tok_s", is_prompt ? ordered_json(median(tok_s)) : none},
      {"decode_tok_s", is_prompt ? none : ordered_json(median(tok_s))},
      {"ttft_ms", is_prompt ? ordered_json(median(ms)) : none},
      {"tok_s", statistics_json(tok_s)},
      {"samples_ns", samples_ns},
      {"step_ms", steps_json(repetitions)},
      {"evictions", evictions_json(repetitions)},
      {"kv_bytes",
       {{"now", last.kv_now_bytes},
        {"peak", last.kv_peak_bytes},
        {"full_cache", last.kv_full_bytes}}},
      {"residual_bytes", run.result.footprint.residual_bytes},
      {"compute_bytes", run.result.footprint.compute_bytes()},
      {"read", share_json("gb_s", !is_prompt, last.read_bytes / seconds, run.peaks.read_bytes_s)},
      {"compute",
       share_json("gflop_s", is_prompt, last.operations / seconds, run.peaks.operations_s)}};
}

BenchOutput::BenchOutput(std::string_view format, const std::vector<BenchSetting>& settings)
    : format_(format) {
  for (size_t i = 0; i < kColumns.size(); ++i) {
    const auto value = kColumns.at(i).value;
    const std::string standard = value(BenchSetting());
    if (std::any_of(settings.begin(), settings.end(),
                    [&](const BenchSetting& setting) { return value(setting) != standard; })) {
      columns_.push_back(i);
    }
  }
}

std::string BenchOutput::table_row(const ordered_json& run, const BenchSetting& setting) {
  std::string names = "| model | size | params | ";
  std::string rules = "|---|---:|---:|";
  const ordered_json& read = run["read"]["share"];
  const ordered_json& share = read.is_null() ? run["compute"]["share"] : read;
  std::string row = "| " + std::filesystem::path(setting.model).stem().string() + " | " +
                    format_bytes(run["model_size"]) + " | " + params_text(run["model_n_params"]) +
                    " | ";
  for (const size_t column : columns_) {
    names += kColumns.at(column).name + std::string(" | ");
    rules += "---:|";
    row += kColumns.at(column).value(setting) + " | ";
  }
  names += "threads | policy | test | t/s | KV cache | of peak |\n";
  rules += "---:|---|---|---:|---:|---:|\n";
  row += run["n_threads"].dump() + " | " + run["policy"].get<std::string>() + " | " +
         run["test"].get<std::string>() + " | " + rounded_text(run["tok_s"]["median"], 2) + " ± " +
         rounded_text(run["tok_s"]["stddev"], 2) + " | " + format_bytes(run["kv_bytes"]["now"]) +
         " | " + (share.is_null() ? "" : rounded_text(100 * share.get<double>(), 0) + " %") +
         " |\n";
  return n_runs_ == 0 ? names + rules + row : row;
}

void BenchOutput::add(const ordered_json& run, const BenchSetting& setting) {
  if (format_ == "md") {
    write_output(table_row(run, setting));
  } else if (format_ == "csv") {
    write_output((n_runs_ == 0 ? csv_line(run, true) : "") + csv_line(run, false));
  } else if (format_ == "jsonl") {
    write_output(json_text(run, -1) + "\n");
  } else {
    write_output((n_runs_ == 0 ? "[\n" : ",\n") + json_text(run, 2));
  }
  ++n_runs_;
}

void BenchOutput::finish() {
  if (format_ == "json") {
    write_output(n_runs_ == 0 ? "[]\n" : "\n]\n");
  }
}

}  // namespace winnow::cli
