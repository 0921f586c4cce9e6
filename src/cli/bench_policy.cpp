// winnow bench policy: what policies cost, phase by phase, on generated rows and without a model.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/output.h"
#include "cli/policy_flags.h"
#include "cli/statistics.h"
#include "cli/verbs.h"
#include "engine/policy_benchmark.h"
#include "policy/methods.h"

namespace winnow::cli {
namespace {

using engine::PolicyBenchmarkResult;
using engine::PolicyTimes;
using nlohmann::ordered_json;

struct PolicyBenchFlags {
  std::vector<std::string> policies;
  std::string budget = "512";
  std::string row_type = "f16";
  engine::PolicyBenchmarkOptions options;
};

// One policy's numbers. Ratios are of medians.
struct Report {
  const policy::Policy& policy;
  const engine::PolicyBenchmarkOptions& options;
  const PolicyBenchmarkResult& result;

  const PolicyTimes& times() const { return result.times; }
  double ns_per_score(const std::vector<double>& select) const {
    return median(select) * 1e6 / options.n_rows / options.n_kv_heads;
  }
  // Of the pages given back in the same repetition, which take longer than the moves and vary more.
  double moves_ms() const {
    std::vector<double> moves = times().compact;
    for (size_t i = 0; i < moves.size(); ++i) {
      moves[i] -= times().give_back[i];
    }
    return median(std::move(moves));
  }
  bool reads() const { return !times().read.empty(); }
  bool has_static_scores() const { return !times().append.empty(); }
  double append_cost() const { return median(times().append) / median(times().append_without) - 1; }
};

ordered_json times_json(const std::vector<double>& ms) {
  return ms.empty() ? ordered_json(nullptr) : statistics_json(ms);
}

ordered_json report_json(const Report& report) {
  const PolicyTimes& times = report.times();
  const ordered_json none = nullptr;
  return {{"policy", report.policy.spec()},
          {"rows", report.options.n_rows},
          {"heads", report.options.n_kv_heads},
          {"head_dim", report.options.head_dim},
          {"row_type", cache::row_type_name(report.options.row_type)},
          {"budget_rows", report.result.budget_rows},
          {"n_threads", report.options.n_threads},
          {"repetitions", times.score.size()},
          {"score",
           {{"ms", times_json(times.score)},
            {"read_ms", times_json(times.read)},
            {"read_bytes", report.result.read_bytes},
            {"of_read",
             report.reads() ? ordered_json(median(times.read) / median(times.score)) : none}}},
          {"append",
           {{"ms", times_json(times.append)},
            {"without_scores_ms", times_json(times.append_without)},
            {"cost", report.has_static_scores() ? ordered_json(report.append_cost()) : none}}},
          {"select",
           {{"ms", times_json(times.select)},
            {"ns_per_score", report.ns_per_score(times.select)},
            {"ns_per_score_of_128_values", report.ns_per_score(times.select_ranks)},
            {"ns_per_score_of_2_values", report.ns_per_score(times.select_two)},
            {"ns_per_equal_score", report.ns_per_score(times.select_equal)},
            {"of_score", median(times.select) / median(times.score)}}},
          {"compact",
           {{"ms", times_json(times.compact)},
            {"copy_ms", times_json(times.copy)},
            {"give_back_ms", times_json(times.give_back)},
            {"moved_bytes", report.result.moved_bytes},
            {"of_copy", median(times.copy) / report.moves_ms()}}},
          {"one_go_ms", times_json(times.one_go)},
          {"chunked",
           {{"chunk", report.options.chunk},
            {"ms", times_json(times.chunked)},
            {"evictions", report.result.n_chunked_evictions},
            {"of_one_go", median(times.chunked) / median(times.one_go)}}}};
}

// "0.021 (0.019–0.034)": median, minimum and maximum.
std::string spread_text(const std::vector<double>& ms) {
  return rounded_text(median(ms), 3) + " (" +
         rounded_text(*std::min_element(ms.begin(), ms.end()), 3) + "–" +
         rounded_text(*std::max_element(ms.begin(), ms.end()), 3) + ")";
}

std::string table_head() {
  return "| policy | score, ms | of reading | select, ms | ns a score; 128 values, 2, 1 | compact, "
         "ms | give "
         "back | moves, of copying | in one go, ms | in chunks, ms | ratio | scores at append |\n"
         "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
}

std::string table_row(const Report& report) {
  const PolicyTimes& times = report.times();
  const auto ns = [&](const std::vector<double>& select) {
    return rounded_text(report.ns_per_score(select), 2);
  };
  const auto percent = [](double share) { return rounded_text(100 * share, 1) + " %"; };
  const std::vector<std::string> cells{
      report.policy.spec(),
      spread_text(times.score),
      report.reads() ? percent(median(times.read) / median(times.score)) : "",
      spread_text(times.select),
      ns(times.select) + "; " + ns(times.select_ranks) + ", " + ns(times.select_two) + ", " +
          ns(times.select_equal),
      spread_text(times.compact),
      rounded_text(median(times.give_back), 3),
      percent(median(times.copy) / report.moves_ms()),
      spread_text(times.one_go),
      spread_text(times.chunked),
      rounded_text(median(times.chunked) / median(times.one_go), 2),
      report.has_static_scores() ? percent(report.append_cost()) : ""};
  std::string row = "|";
  for (const std::string& cell : cells) {
    row += " " + cell + " |";
  }
  return row + "\n";
}

std::vector<policy::Policy> policies_of(const PolicyBenchFlags& flags) {
  std::vector<std::string> specs = flags.policies;
  if (specs.empty()) {
    for (const policy::Method& method : policy::kMethods) {
      if (method.make != nullptr && !method.needs_file) {
        specs.emplace_back(method.name);
      }
    }
  }
  std::vector<policy::Policy> policies;
  for (const std::string& spec : specs) {
    policies.push_back(policy::Policy::parse(spec, flags.budget));
    if (policies.back().is_unlimited()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--policy full: it keeps every row, so there is nothing to measure");
    }
  }
  return policies;
}

int run_bench_policy(const PolicyBenchFlags& flags, bool is_json) {
  engine::PolicyBenchmarkOptions options = flags.options;
  options.n_threads = resolve_threads(options.n_threads);
  options.row_type = cache::parse_row_type(flags.row_type);
  const std::vector<policy::Policy> policies = policies_of(flags);
  std::string head = is_json ? "" : table_head();
  for (const policy::Policy& policy : policies) {
    const PolicyBenchmarkResult result = engine::benchmark_policy(policy, options);
    const Report report{.policy = policy, .options = options, .result = result};
    write_output(head + (is_json ? report_json(report).dump() + "\n" : table_row(report)));
    head.clear();
  }
  return 0;
}

}  // namespace

Verb add_bench_policy(CLI::App& app) {
  const auto flags = std::make_shared<PolicyBenchFlags>();
  const auto is_json = std::make_shared<bool>(false);
  engine::PolicyBenchmarkOptions& options = flags->options;
  app.add_option("--policy,--method", flags->policies,
                 "a policy; several by giving the flag several times; default: every method")
      ->allow_extra_args(false);
  app.add_option("--to,--budget", flags->budget, "budget of policies that name none")
      ->capture_default_str();
  const auto count = [&app](const char* name, int& value, int low, int high, const char* help) {
    app.add_option(name, value, help)->check(CLI::Range(low, high))->capture_default_str();
  };
  count("--rows", options.n_rows, 2, 1 << 20, "rows of each KV head");
  count("--heads", options.n_kv_heads, 1, 256, "KV heads of the layer");
  count("--head-dim", options.head_dim, 1, 512, "elements of a key and of a value");
  count("--chunk", options.chunk, 1, 1 << 20, "rows that arrive at once where they come in chunks");
  app.add_option("--type", flags->row_type, "type of rows: f32, f16, bf16")->capture_default_str();
  app.add_option("-t,--threads", options.n_threads, "threads; -1: one per logical processor")
      ->capture_default_str();
  count("-r,--repetitions", options.n_repetitions, 1, 10000,
        "measured repetitions, after one that warms up");
  app.add_flag("--json", *is_json, "an object a line");
  return [flags, is_json] { return run_bench_policy(*flags, *is_json); };
}

}  // namespace winnow::cli
