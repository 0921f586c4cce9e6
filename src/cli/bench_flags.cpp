#include "cli/bench_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/flag_lists.h"
#include "cli/policy_flags.h"
#include "cli/rope_flags.h"

namespace winnow::cli {
namespace {

constexpr size_t kMaxSettings = 10000;
constexpr int kMaxTokens = 1 << 28;

std::vector<int> split_counts(const std::vector<std::string>& lists, const char* flag, int low,
                              int high) {
  std::vector<int> counts;
  for (const std::string& item : split_lists(lists, flag, ',')) {
    int count = 0;
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), count);
    if (error != std::errc() || end != item.data() + item.size() || count < low || count > high) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(flag) + " '" + item + "' is not allowed (whole numbers from " +
                      std::to_string(low) + " to " + std::to_string(high) + ")");
    }
    counts.push_back(count);
  }
  return counts;
}

template <typename Parse>
auto split_as(const std::vector<std::string>& lists, const char* flag, const Parse& parse) {
  std::vector<decltype(parse(std::string_view()))> values;
  for (const std::string& item : split_lists(lists, flag, ',')) {
    values.push_back(parse(item));
  }
  return values;
}

std::vector<int> split_threads(const std::vector<std::string>& lists) {
  std::vector<int> counts = split_counts(lists, "--threads", -1, kMaxThreads);
  for (int& count : counts) {
    count = resolve_threads(count);  // refuses 0
  }
  return counts;
}

engine::EvictWhen parse_eviction(std::string_view name) {
  const engine::EvictWhen when = engine::parse_evict_when(name);
  if (when != engine::EvictWhen::kAfterPrompt && when != engine::EvictWhen::kPerChunk) {
    throw Error(ErrorCode::kInvalidArgument,
                "--evict " + std::string(name) +
                    ": a benchmark has no question, and attends before it evicts (allowed: "
                    "after-prompt, per-chunk)");
  }
  return when;
}

// Policies times budgets; `full` takes none, so it is there once.
std::vector<policy::Policy> split_policies(const BenchFlags& flags) {
  const std::vector<std::string> budgets = split_lists(flags.budgets, "--budget", ',');
  for (const std::string& budget : budgets) {
    policy::parse_budget(budget);  // throws, even where every policy is `full` and takes none
  }
  std::vector<std::string> specs = split_lists(flags.policies, "--policy", ';');
  if (specs.empty()) {
    specs.emplace_back();
  }
  std::vector<policy::Policy> policies;
  for (const std::string& spec : specs) {
    if (budgets.empty() || spec == "full") {
      policies.push_back(make_policy(spec, "", {}));
      continue;
    }
    for (const std::string& budget : budgets) {
      policies.push_back(make_policy(spec, budget, {}));
    }
  }
  return policies;
}

// Every setting with every value.
template <typename Value, typename Set>
void cross(std::vector<BenchSetting>& settings, const std::vector<Value>& values, const Set& set) {
  if (settings.size() * values.size() > kMaxSettings) {
    throw Error(ErrorCode::kInvalidArgument,
                "the lists make more than " + std::to_string(kMaxSettings) + " combinations");
  }
  std::vector<BenchSetting> crossed;
  for (const BenchSetting& setting : settings) {
    for (const Value& value : values) {
      set(crossed.emplace_back(setting), value);
    }
  }
  settings = std::move(crossed);
}

}  // namespace

void add_bench_flags(CLI::App& app, BenchFlags& flags) {
  const auto list = [&app](const char* name, std::vector<std::string>& lists, const char* help) {
    CLI::Option* const option = app.add_option(name, lists, help)->allow_extra_args(false);
    if (!lists.empty()) {
      option->default_str(lists.front());
    }
    return option;
  };
  list("-m,--model", flags.models, "a model, a GGUF file; needed, may be given several times");
  list("-p,--n-prompt", flags.prompts, "prompt tokens of the tests of reading; 0: no such test");
  list("-n,--n-gen", flags.answers, "tokens of the tests of decoding; 0: no such test");
  list("-d,--n-depth", flags.depths, "positions before what is measured");
  list("--np,--parallel", flags.sequences, "sequences that go on together");
  list("-t,--threads", flags.threads, "threads; -1: one per logical processor");
  list("-b,--batch-size", flags.batches, "most prompt tokens computed at once");
  list("--weights", flags.weights, "file, f16, bf16, f32, prompt-f16, prompt-bf16, prompt-f32");
  list("--ctk,--cache-type-k", flags.key_types, "type of cached keys: f32, f16, bf16");
  list("--ctv,--cache-type-v", flags.value_types, "type of cached values: f32, f16, bf16");
  list("--policy,--method", flags.policies,
       "policies, with ; in between; default: auto with a budget, full without");
  list("--budget", flags.budgets, "budgets of all policies but full: 512,10%,64MiB");
  list("--evict", flags.evictions, "after-prompt, per-chunk");
  list("--prefill", flags.orders, "auto, layer-major, chunk-major");
  app.add_option("-r,--repetitions", flags.n_repetitions,
                 "measured runs of every test, after one that warms up")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  app.add_flag("--allow-beyond-context", flags.allow_beyond_context,
               "permit more positions than the model was trained for");
  add_gpu_flag(app, flags.gpu_layers);
  add_rope_flags(app, flags.rope);
  CLI::Option* const format = app.add_option("-o,--output", flags.format, "md, json, jsonl or csv")
                                  ->check(CLI::IsMember({"md", "json", "jsonl", "csv"}))
                                  ->capture_default_str();
  app.add_flag("--json", flags.is_json, "the same as -o jsonl")->excludes(format);
}

std::vector<engine::BenchmarkTest> bench_tests(const BenchFlags& flags) {
  using Kind = engine::BenchmarkTest::Kind;
  std::vector<engine::BenchmarkTest> tests;
  const auto add = [&tests](Kind kind, const std::vector<int>& counts) {
    for (const int n_tokens : counts) {
      if (n_tokens > 0) {
        tests.push_back({.kind = kind, .n_tokens = n_tokens});
      }
    }
  };
  add(Kind::kPrompt, split_counts(flags.prompts, "--n-prompt", 0, kMaxTokens));
  add(Kind::kDecode, split_counts(flags.answers, "--n-gen", 0, kMaxTokens));
  if (tests.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is nothing to measure: neither -p nor -n is above 0");
  }
  return tests;
}

std::vector<BenchSetting> bench_settings(const BenchFlags& flags) {
  int max_tokens = 0;
  for (const engine::BenchmarkTest& test : bench_tests(flags)) {
    max_tokens = std::max(max_tokens, test.n_tokens);
  }
  std::vector<BenchSetting> settings(1);
  settings.front().options.max_tokens = max_tokens;
  settings.front().options.n_repetitions = flags.n_repetitions;
  settings.front().options.allow_beyond_context = flags.allow_beyond_context;
  settings.front().options.engine.is_on_gpu = is_on_gpu(flags.gpu_layers);

  cross(settings, flags.models, [](BenchSetting& s, const std::string& v) { s.model = v; });
  cross(settings,
        split_as(flags.weights, "--weights",
                 [](std::string_view name) { return model::parse_weight_option(name); }),
        [](BenchSetting& s, const model::WeightOption& v) { s.weights = v; });
  cross(settings, split_threads(flags.threads),
        [](BenchSetting& s, int v) { s.options.engine.n_threads = v; });
  cross(settings, split_counts(flags.batches, "--batch-size", 1, 1 << 20),
        [](BenchSetting& s, int v) { s.options.engine.n_batch = v; });
  cross(settings, split_as(flags.key_types, "--cache-type-k", cache::parse_row_type),
        [](BenchSetting& s, cache::RowType v) { s.options.key_type = v; });
  cross(settings, split_as(flags.value_types, "--cache-type-v", cache::parse_row_type),
        [](BenchSetting& s, cache::RowType v) { s.options.value_type = v; });
  cross(settings, split_policies(flags),
        [](BenchSetting& s, const policy::Policy& v) { s.policy = v; });
  cross(settings, split_as(flags.evictions, "--evict", parse_eviction),
        [](BenchSetting& s, engine::EvictWhen v) { s.options.evict = v; });
  cross(settings, split_as(flags.orders, "--prefill", engine::parse_prefill_order),
        [](BenchSetting& s, std::optional<engine::PrefillOrder> v) { s.options.order = v; });
  cross(settings, split_counts(flags.sequences, "--parallel", 1, 256),
        [](BenchSetting& s, int v) { s.options.n_sequences = v; });
  cross(settings, split_counts(flags.depths, "--n-depth", 0, kMaxTokens),
        [](BenchSetting& s, int v) { s.options.depth = v; });
  return settings;
}

}  // namespace winnow::cli
