// winnow and libllama side by side: the same file, threads and tokens, in alternation in one process.
//
// libllama runs at its best: of flash attention on and off and of repacked and plain weights, the fastest setting for
// each measurement is found first and then used. Prints a Markdown table: median, minimum and maximum of each measurement
// in tokens per second, the ratios of medians by wall and by processor time, and how near winnow comes to its floor: what
// it must read or compute, at the machine's own speed, measured here too.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <functional>
#include <map>
#include <random>

#include "base/stopwatch.h"
#include "kernels/machine_speed.h"
#include "llama.h"
#include "model/model.h"
#include "program.h"

namespace winnow::bench {
namespace {

struct Options {
  std::string model;
  std::vector<std::string> weights{"file", "bf16"};
  Setup setup;
  int n_repetitions = 5;
  int n_prefill = 512;
  int n_decode = 32;
  int depth = 4096;
  int budget = 512;
  std::string libllama;  // one setting of it only
  std::string only;      // measurements whose name has this in it
};

// Wall and processor time of one run. Processor time bears with a busy machine, if there is one thread.
struct Time {
  double wall_s = 0;
  double cpu_s = 0;
};

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

Time time_of(const std::function<void()>& work) {
  const Stopwatch stopwatch;
  const double cpu_start = cpu_seconds();
  work();
  return {.wall_s = stopwatch.ms() / 1000, .cpu_s = cpu_seconds() - cpu_start};
}

std::vector<int32_t> random_tokens(int n, int n_vocab) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) {
    token = std::uniform_int_distribution<int32_t>(0, n_vocab - 1)(random);
  }
  return tokens;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs of one program.
struct Samples {
  std::vector<double> wall_s;
  std::vector<double> cpu_s;

  void add(const Time& time) {
    wall_s.push_back(time.wall_s);
    cpu_s.push_back(time.cpu_s);
  }
};

// "507.9 (498.1–511.3)" tokens per second.
std::string rates(int n_tokens, const std::vector<double>& seconds) {
  const auto [least, most] = std::minmax_element(seconds.begin(), seconds.end());
  char text[64];
  std::snprintf(text, sizeof text, "%.1f (%.1f–%.1f)", n_tokens / median(seconds), n_tokens / *most,
                n_tokens / *least);
  return text;
}

// One line of the table: how a program gets ready for a run, and the run.
struct Measurement {
  std::string name;
  int n_tokens;  // of all sequences
  std::function<void(Program&)> prepare;
  std::function<void(Program&)> run;
  std::function<Work(const Winnow&)> work;  // of a run that is prepared
};

class Comparison {
 public:
  explicit Comparison(const Options& options) : options_(options) {
    Setup& setup = options_.setup;
    setup.n_positions =
        options.depth + options.n_prefill + options.n_decode * (options.n_repetitions + 2) + 64;
    setup.n_together = 128 + options.n_decode;
    for (const std::string& weights : options.weights) {
      models_.push_back(std::make_unique<model::Model>(
          options.model, model::ModelOptions{.weights = model::parse_weight_option(weights),
                                             .n_threads = setup.n_threads}));
    }
    tokens_ = random_tokens(options.depth + options.n_prefill, models_[0]->hyper().n_vocab);
    for (const bool has_flash_attention : {true, false}) {
      for (const bool is_repacked : {true, false}) {
        if (options.libllama.empty() ||
            options.libllama == libllama_name(has_flash_attention, is_repacked)) {
          libllama_.push_back(
              make_libllama(options.model, setup, has_flash_attention, is_repacked));
        }
      }
    }
    read_speed_ = kernels::measure_read_speed(setup.n_threads);
    multiply_add_speed_ = kernels::measure_multiply_add_speed(setup.n_threads);
  }

  void run() {
    std::printf("%s, %d threads; the machine reads %.1f GB/s and does %.0f GFLOP/s (%s)\n\n",
                options_.model.substr(options_.model.rfind('/') + 1).c_str(),
                options_.setup.n_threads, read_speed_ / 1e9, multiply_add_speed_ / 1e9,
                kernels::instruction_set());
    std::printf(
        "| | libllama tok/s | winnow tok/s | ratio | ratio of CPU time | winnow, of its floor |\n"
        "|---|---|---|---|---|---|\n");
    const std::string depth = std::to_string(options_.depth);
    for (size_t i = 0; i < models_.size(); ++i) {
      const auto winnow = make_winnow(*models_[i], options_.setup, "full");
      const std::string suffix = i == 0 ? "" : ", weights " + options_.weights[i];
      compare(prefill_at(0, suffix), *winnow);
      if (i == 0) {
        compare(decode_at(16, ""), *winnow);
        compare(decode_together(), *winnow);
      }
      compare(prefill_at(options_.depth, suffix), *winnow);
      if (i == 0) {
        compare(decode_at(options_.depth, ""), *winnow);
        const auto evicting = make_winnow(*models_[i], options_.setup,
                                          "knorm:budget=" + std::to_string(options_.budget));
        compare(evicting_decode(", budget " + std::to_string(options_.budget)), *evicting);
      }
    }
    if (options_.only.empty()) {
      compare_idle_policy();
    }
  }

 private:
  std::span<const int32_t> tokens(int first, int n) const {
    return std::span(tokens_).subspan(static_cast<size_t>(first), static_cast<size_t>(n));
  }

  // Brings a program to where n positions have been fed.
  void bring_to(Program& program, int n) {
    int& n_fed = n_fed_[&program];
    if (n_fed >= n) {
      program.rewind(n);
    } else {
      program.rewind(0);
      program.prefill(tokens(0, n));
    }
    n_fed = n;
  }

  Measurement prefill_at(int start, const std::string& suffix) {
    const int n = options_.n_prefill;
    return {.name = "prefill " + std::to_string(n) + " at " + std::to_string(start) + suffix,
            .n_tokens = n,
            .prepare = [=, this](Program& program) { bring_to(program, start); },
            .run = [=, this](Program& program) { program.prefill(tokens(start, n)); },
            .work = [=](const Winnow& winnow) { return winnow.prefill_work(n); }};
  }

  Measurement decode_at(int start, const std::string& suffix) {
    const int n = options_.n_decode;
    return {.name = "decode at " + std::to_string(start) + suffix,
            .n_tokens = n,
            .prepare = [=, this](Program& program) { bring_to(program, start); },
            .run = [=](Program& program) { program.decode(n); },
            .work = [=](const Winnow& winnow) { return winnow.decode_work(n); }};
  }

  // An evicting program goes on from run to run; libllama is brought back.
  Measurement evicting_decode(const std::string& suffix) {
    Measurement m = decode_at(options_.depth, suffix);
    m.prepare = [this, prepare = m.prepare](Program& program) {
      if (dynamic_cast<Winnow*>(&program) == nullptr || !n_fed_.contains(&program)) {
        prepare(program);
      }
    };
    return m;
  }

  Measurement decode_together() {
    const int n = options_.n_decode;
    const int n_sequences = options_.setup.n_sequences;
    return {.name = "decode " + std::to_string(n_sequences) + " sequences together at 64",
            .n_tokens = n * n_sequences,
            .prepare = [=, this](Program& program) { program.start_together(tokens(0, 64)); },
            .run = [=](Program& program) { program.decode_together(n); },
            .work = [=](const Winnow& winnow) { return winnow.together_work(n); }};
  }

  static Time measure(const Measurement& m, Program& program) {
    m.prepare(program);
    return time_of([&] { m.run(program); });
  }

  Program& best_libllama(const Measurement& m) {
    Program* best = libllama_.front().get();
    double best_s = 1e30;
    for (int round = 0; libllama_.size() > 1 && round < 3; ++round) {
      for (const auto& libllama : libllama_) {
        const double s = measure(m, *libllama).wall_s;
        if (s < best_s) {
          best_s = s;
          best = libllama.get();
        }
      }
    }
    return *best;
  }

  void compare(const Measurement& m, Winnow& winnow) {
    if (m.name.find(options_.only) == std::string::npos) {
      return;
    }
    Program& libllama = best_libllama(m);
    Samples theirs;
    Samples ours;
    for (int i = -1; i < options_.n_repetitions; ++i) {
      const Time a = measure(m, libllama);
      const Time b = measure(m, winnow);
      if (i >= 0) {  // the first is a warm-up
        theirs.add(a);
        ours.add(b);
      }
    }
    m.prepare(winnow);
    const Work work = m.work(winnow);
    const double seconds = median(ours.wall_s);
    char share[64];
    if (work.operations > 0) {
      std::snprintf(share, sizeof share, "%.0f GFLOP/s, %.0f %%", work.operations / seconds / 1e9,
                    work.operations / seconds / multiply_add_speed_ * 100);
    } else {
      std::snprintf(share, sizeof share, "%.1f GB/s, %.0f %%", work.bytes / seconds / 1e9,
                    work.bytes / seconds / read_speed_ * 100);
    }
    std::printf("| %s | %s %s | %s | %.2f | %.2f | %s |\n", m.name.c_str(),
                rates(m.n_tokens, theirs.wall_s).c_str(), libllama.name().c_str(),
                rates(m.n_tokens, ours.wall_s).c_str(), median(theirs.wall_s) / seconds,
                median(theirs.cpu_s) / median(ours.cpu_s), share);
    std::fflush(stdout);
  }

  // What a policy costs that never has to evict: winnow beside itself.
  void compare_idle_policy() {
    const auto full = make_winnow(*models_[0], options_.setup, "full");
    const auto idle = make_winnow(*models_[0], options_.setup,
                                  "knorm:budget=" + std::to_string(options_.setup.n_positions));
    std::printf(
        "\n| | full tok/s | a policy that never evicts, tok/s | ratio of CPU time |\n"
        "|---|---|---|---|\n");
    for (const Measurement& m : {prefill_at(0, ""), decode_at(16, "")}) {
      Samples without;
      Samples with;
      for (int i = -1; i < 2 * options_.n_repetitions; ++i) {
        const Time a = measure(m, *full);
        const Time b = measure(m, *idle);
        if (i >= 0) {
          without.add(a);
          with.add(b);
        }
      }
      std::printf("| %s | %s | %s | %.3f |\n", m.name.c_str(),
                  rates(m.n_tokens, without.wall_s).c_str(), rates(m.n_tokens, with.wall_s).c_str(),
                  median(without.cpu_s) / median(with.cpu_s));
      std::fflush(stdout);
    }
  }

  Options options_;
  std::vector<std::unique_ptr<model::Model>> models_;  // by options_.weights
  std::vector<int32_t> tokens_;
  std::vector<std::unique_ptr<Program>> libllama_;
  std::map<const Program*, int> n_fed_;  // at the start of a program's last run
  double read_speed_;
  double multiply_add_speed_;
};

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Compares winnow with libllama on one model.");
  app.add_option("-m,--model", options.model, "a GGUF file")->required();
  app.add_option("--weights", options.weights,
                 "winnow's weights: the first for all measurements, others for prompts alone")
      ->delimiter(',')
      ->capture_default_str();
  app.add_option("-t,--threads", options.setup.n_threads, "threads of both")->capture_default_str();
  app.add_option("-r,--repetitions", options.n_repetitions, "runs of each measurement")
      ->capture_default_str();
  app.add_option("--depth", options.depth, "positions before the deep measurements")
      ->capture_default_str();
  app.add_option("--budget", options.budget, "rows per KV head of the evicting run")
      ->capture_default_str();
  app.add_option("--libllama", options.libllama,
                 "only this setting of libllama: fa, fa+repack, no-fa, no-fa+repack; default: the "
                 "fastest of all")
      ->check(CLI::IsMember({"fa", "fa+repack", "no-fa", "no-fa+repack"}));
  app.add_option("--only", options.only, "only measurements whose name has this text in it");
  app.add_option("--n-decode", options.n_decode, "tokens a decoding run generates")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  Comparison(options).run();
  return 0;
}

}  // namespace
}  // namespace winnow::bench

int main(int argc, char** argv) {
  return winnow::bench::run(argc, argv);
}
