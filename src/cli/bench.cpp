// winnow bench: how fast models are, over every combination of the lists given.

#include <CLI/CLI.hpp>
#include <map>
#include <memory>
#include <string>

#include "base/error.h"
#include "cli/bench_flags.h"
#include "cli/bench_report.h"
#include "cli/lost_file.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "engine/benchmark.h"
#include "kernels/machine_speed.h"
#include "model/fingerprint.h"

namespace winnow::cli {
namespace {

struct LoadedModel {
  LoadedModel(const BenchSetting& setting, const model::RopeOptions& rope)
      : path(setting.model),
        weights(setting.weights),
        model(setting.model, {.weights = setting.weights,
                              .n_threads = setting.options.engine.n_threads,
                              .rope = rope}),
        fingerprint(model.fingerprint()) {}

  bool is_for(const BenchSetting& setting) const {
    return path == setting.model && weights == setting.weights;
  }

  std::string path;
  model::WeightOption weights;
  model::Model model;
  std::string fingerprint;
};

class Bench {
 public:
  explicit Bench(const BenchFlags& flags)
      : flags_(flags),
        tests_(bench_tests(flags)),
        settings_(bench_settings(flags)),
        output_(flags.is_json ? "jsonl" : flags.format, settings_) {}

  void run() {
    for (const BenchSetting& setting : settings_) {
      run_setting(setting);
    }
  }
  void finish() { output_.finish(); }

 private:
  void run_setting(const BenchSetting& setting) {
    if (!loaded_ || !loaded_->is_for(setting)) {
      loaded_.reset();  // two at once may not fit
      loaded_ = std::make_unique<LoadedModel>(setting, flags_.rope);
      load_on_gpu(flags_.gpu_layers, loaded_->model);
    }
    std::string what = setting.model + ", policy " + setting.policy.spec();
    try {
      engine::Benchmark benchmark(loaded_->model, setting.policy, setting.options);
      const std::string of_setting = what;
      for (const engine::BenchmarkTest& test : tests_) {
        what = of_setting + ", " + engine::test_name(test, setting.options.depth);
        run_test(setting, test, benchmark);
      }
    } catch (const Error& error) {
      throw Error(error.code(), what + ": " + error.what());
    }
  }

  void run_test(const BenchSetting& setting, const engine::BenchmarkTest& test,
                engine::Benchmark& benchmark) {
    // What a GPU can do is not measured.
    const Peaks peaks =
        setting.options.engine.is_on_gpu ? Peaks{} : peaks_with(setting.options.engine.n_threads);
    ProgressBar bar(engine::test_name(test, setting.options.depth), true);
    const engine::BenchmarkResult result =
        benchmark.measure(test, [&bar](double fraction) { bar.update(fraction); });
    bar.clear();
    output_.add(bench_json({.model = loaded_->model,
                            .fingerprint = loaded_->fingerprint,
                            .setting = setting,
                            .test = test,
                            .order = benchmark.order(),
                            .result = result,
                            .peaks = peaks}),
                setting);
  }

  const Peaks& peaks_with(int n_threads) {
    const auto found = peaks_.find(n_threads);
    if (found != peaks_.end()) {
      return found->second;
    }
    const Peaks peaks{.read_bytes_s = kernels::measure_read_speed(n_threads),
                      .operations_s = kernels::measure_multiply_add_speed(n_threads)};
    return peaks_.emplace(n_threads, peaks).first->second;
  }

  const BenchFlags& flags_;
  std::vector<engine::BenchmarkTest> tests_;
  std::vector<BenchSetting> settings_;
  BenchOutput output_;
  std::unique_ptr<LoadedModel> loaded_;
  std::map<int, Peaks> peaks_;  // by number of threads
};

int run_bench(const BenchFlags& flags) {
  if (flags.models.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--model is required; 'winnow bench --help' lists what there is");
  }
  Bench bench(flags);
  report_lost_file();
  try {
    bench.run();
  } catch (...) {
    bench.finish();  // what was measured before stays readable
    throw;
  }
  bench.finish();
  return 0;
}

}  // namespace

Verb add_bench(CLI::App& app) {
  const auto flags = std::make_shared<BenchFlags>();
  add_bench_flags(app, *flags);
  CLI::App* const policy =
      app.add_subcommand("policy", "measure what policies cost, on generated rows");
  return [flags, policy, run_policy = add_bench_policy(*policy)] {
    return policy->parsed() ? run_policy() : run_bench(*flags);
  };
}

}  // namespace winnow::cli
