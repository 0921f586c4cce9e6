// winnow and libllama side by side: the same file, threads and tokens, in alternation in one process.
//
// libllama runs at its best: of flash attention on and off and of repacked and plain weights, the fastest setting for
// each measurement is found first and then used. Both caches are f16. Prints the median, minimum and maximum of each
// measurement in tokens per second, and the ratios of medians by wall and by processor time.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence.h"
#include "llama.h"

namespace {

using winnow::engine::Engine;
using winnow::engine::Sequence;

struct Options {
  std::string model;
  std::string weights = "file";
  int n_threads = 2;
  int repetitions = 5;
  int n_prefill = 512;
  int n_decode = 32;
  int depth = 4096;
  int budget = 512;
  std::string libllama;  // one setting of it only
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
  const auto start = std::chrono::steady_clock::now();
  const double cpu_start = cpu_seconds();
  work();
  return {.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
          .cpu_s = cpu_seconds() - cpu_start};
}

std::vector<int32_t> random_tokens(int n, int n_vocab) {
  std::mt19937 random(1);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens) {
    token = std::uniform_int_distribution<int32_t>(0, n_vocab - 1)(random);
  }
  return tokens;
}

// One way of running libllama.
class Libllama {
 public:
  Libllama(const Options& options, bool flash_attention, bool repack) {
    llama_model_params model_params = llama_model_default_params();
    model_params.use_extra_bufts = repack;
    model_ = llama_model_load_from_file(options.model.c_str(), model_params);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(options.depth + options.n_prefill + options.n_decode + 64);
    params.n_batch = 512;
    params.n_ubatch = 512;
    params.n_threads = options.n_threads;
    params.n_threads_batch = options.n_threads;
    params.flash_attn_type =
        flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    context_ = llama_init_from_model(model_, params);
    name_ = name(flash_attention, repack);
  }
  ~Libllama() {
    llama_free(context_);
    llama_model_free(model_);
  }
  Libllama(const Libllama&) = delete;
  Libllama& operator=(const Libllama&) = delete;

  static std::string name(bool flash_attention, bool repack) {
    return std::string(flash_attention ? "fa" : "no-fa") + (repack ? "+repack" : "");
  }
  const std::string& name() const { return name_; }

  void rewind(int n_tokens) { llama_memory_seq_rm(llama_get_memory(context_), 0, n_tokens, -1); }

  void prefill(const std::vector<int32_t>& tokens) {
    for (size_t done = 0; done < tokens.size(); done += 512) {
      const size_t n = std::min<size_t>(512, tokens.size() - done);
      std::vector<int32_t> part(tokens.begin() + static_cast<std::ptrdiff_t>(done),
                                tokens.begin() + static_cast<std::ptrdiff_t>(done + n));
      llama_decode(context_, llama_batch_get_one(part.data(), static_cast<int32_t>(n)));
    }
    llama_synchronize(context_);
  }

  void decode(int n_tokens) {
    for (int i = 0; i < n_tokens; ++i) {
      int32_t token = 100 + i;
      llama_decode(context_, llama_batch_get_one(&token, 1));
      llama_get_logits_ith(context_, -1);
    }
  }

 private:
  llama_model* model_;
  llama_context* context_;
  std::string name_;
};

// winnow with one policy.
class Winnow {
 public:
  Winnow(const winnow::model::Model& model, const Options& options, const std::string& policy)
      : engine_(model, {.n_threads = options.n_threads, .n_batch = 512}),
        sequence_(shape(model, options, winnow::policy::Policy::parse(policy)),
                  winnow::policy::Policy::parse(policy)) {}

  // Back to the first n tokens; only while nothing was evicted.
  void rewind(int n_tokens) {
    std::vector<int> slots(static_cast<size_t>(n_tokens));
    for (int i = 0; i < n_tokens; ++i) {
      slots[static_cast<size_t>(i)] = i;
    }
    const winnow::cache::CacheShape& shape = sequence_.cache.shape();
    for (int layer = 0; layer < shape.n_layers; ++layer) {
      for (int head = 0; head < shape.n_kv_heads; ++head) {
        sequence_.cache.keep(layer, head, slots);
      }
    }
    sequence_.positions_fed = n_tokens;
  }

  void prefill(const std::vector<int32_t>& tokens) {
    const winnow::engine::Feed feed{.sequence = &sequence_, .tokens = tokens};
    engine_.feed({&feed, 1}, {.progress = {}});
  }

  void decode(int n_tokens) {
    for (int i = 0; i < n_tokens; ++i) {
      const winnow::engine::DecodeInput input{&sequence_, 100 + i};
      engine_.decode({&input, 1});
    }
  }

 private:
  static winnow::cache::CacheShape shape(const winnow::model::Model& model, const Options& options,
                                         const winnow::policy::Policy& policy) {
    const int rows =
        options.depth + options.n_prefill + options.n_decode * (options.repetitions + 2) + 64;
    return winnow::engine::cache_shape(model.hyper(), winnow::cache::RowType::kF16,
                                       winnow::cache::RowType::kF16, policy, rows);
  }

  Engine engine_;
  Sequence sequence_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Runs of one program, in tokens per second.
struct Samples {
  std::vector<double> wall;
  std::vector<double> cpu;

  void add(int n_tokens, const Time& time) {
    wall.push_back(n_tokens / time.wall_s);
    cpu.push_back(n_tokens / time.cpu_s);
  }
};

// A measurement: what to do before each run, and the run.
struct Measurement {
  std::string name;
  int n_tokens;
  int start;  // positions fed before
  bool is_prefill;
};

class Comparison {
 public:
  explicit Comparison(const Options& options)
      : options_(options),
        model_(options.model, {.weights = winnow::model::parse_weight_type(options.weights),
                               .n_threads = options.n_threads}),
        tokens_(random_tokens(options.depth + options.n_prefill, model_.hyper().n_vocab)) {
    for (const bool flash_attention : {true, false}) {
      for (const bool repack : {true, false}) {
        if (options.libllama.empty() ||
            options.libllama == Libllama::name(flash_attention, repack)) {
          libllama_.push_back(std::make_unique<Libllama>(options, flash_attention, repack));
        }
      }
    }
    winnow_ = std::make_unique<Winnow>(model_, options, "full");
    evicting_ =
        std::make_unique<Winnow>(model_, options, "knorm:budget=" + std::to_string(options.budget));
  }

  void run() {
    std::printf(
        "| %s, %d threads, weights %s | libllama tok/s | winnow tok/s | ratio | ratio of CPU time "
        "|\n"
        "|---|---|---|---|---|\n",
        options_.model.substr(options_.model.rfind('/') + 1).c_str(), options_.n_threads,
        options_.weights.c_str());
    compare(
        {"prefill " + std::to_string(options_.n_prefill) + " at 0", options_.n_prefill, 0, true},
        nullptr);
    compare({"decode at 0", options_.n_decode, 1, false}, nullptr);
    const std::vector<int32_t> deep(tokens_.begin(), tokens_.begin() + options_.depth);
    for (const auto& libllama : libllama_) {
      libllama->rewind(0);
      libllama->prefill(deep);
    }
    winnow_->rewind(0);
    winnow_->prefill(deep);
    evicting_->prefill(deep);
    const std::string depth = std::to_string(options_.depth);
    compare({"prefill " + std::to_string(options_.n_prefill) + " at " + depth, options_.n_prefill,
             options_.depth, true},
            nullptr);
    compare({"decode at " + depth, options_.n_decode, options_.depth, false}, nullptr);
    compare({"decode at " + depth + ", budget " + std::to_string(options_.budget),
             options_.n_decode, options_.depth, false},
            evicting_.get());
  }

 private:
  Time measure_libllama(Libllama& libllama, const Measurement& m) {
    libllama.rewind(m.start);
    return run_one(libllama, m);
  }

  template <typename Program>
  Time run_one(Program& program, const Measurement& m) {
    const std::vector<int32_t> part(tokens_.begin() + m.start,
                                    tokens_.begin() + m.start + m.n_tokens);
    return time_of([&] { m.is_prefill ? program.prefill(part) : program.decode(m.n_tokens); });
  }

  void compare(const Measurement& m, Winnow* evicting) {
    if (!m.is_prefill && m.start < options_.depth) {  // something to attend to
      const std::vector<int32_t> first(tokens_.begin(), tokens_.begin() + m.start);
      for (const auto& libllama : libllama_) {
        libllama->rewind(0);
        libllama->prefill(first);
      }
      winnow_->rewind(0);
      winnow_->prefill(first);
    }
    Libllama* best = libllama_.front().get();
    double best_s = 1e30;
    for (const auto& libllama : libllama_) {
      for (int warm = 0; libllama_.size() > 1 && warm < 2; ++warm) {
        const double s = measure_libllama(*libllama, m).wall_s;
        if (s < best_s) {
          best_s = s;
          best = libllama.get();
        }
      }
    }
    Samples theirs;
    Samples ours;
    for (int i = -1; i < options_.repetitions; ++i) {
      const Time a = measure_libllama(*best, m);
      if (evicting == nullptr) {
        winnow_->rewind(m.start);
      }
      const Time b = run_one(evicting == nullptr ? *winnow_ : *evicting, m);
      if (i >= 0) {  // the first is a warm-up
        theirs.add(m.n_tokens, a);
        ours.add(m.n_tokens, b);
      }
    }
    const auto print = [](const std::vector<double>& tok_s) {
      std::printf("%.1f (%.1f–%.1f)", median(tok_s), *std::min_element(tok_s.begin(), tok_s.end()),
                  *std::max_element(tok_s.begin(), tok_s.end()));
    };
    std::printf("| %s | ", m.name.c_str());
    print(theirs.wall);
    std::printf(" %s | ", best->name().c_str());
    print(ours.wall);
    std::printf(" | %.2f | %.2f |\n", median(ours.wall) / median(theirs.wall),
                median(ours.cpu) / median(theirs.cpu));
    std::fflush(stdout);
  }

  Options options_;
  winnow::model::Model model_;
  std::vector<int32_t> tokens_;
  std::vector<std::unique_ptr<Libllama>> libllama_;
  std::unique_ptr<Winnow> winnow_;
  std::unique_ptr<Winnow> evicting_;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Compares winnow with libllama on one model.");
  app.add_option("-m,--model", options.model, "a GGUF file")->required();
  app.add_option("--weights", options.weights, "winnow's weights: file, f16, bf16, f32");
  app.add_option("-t,--threads", options.n_threads, "threads of both");
  app.add_option("-r,--repetitions", options.repetitions, "runs of each measurement");
  app.add_option("--depth", options.depth, "positions before the deep measurements");
  app.add_option("--budget", options.budget, "rows per KV head of the evicting run");
  app.add_option("--libllama", options.libllama,
                 "only this setting of libllama: fa, fa+repack, no-fa, no-fa+repack; default: the "
                 "fastest of all");
  app.add_option("--n-decode", options.n_decode, "tokens a decoding run generates");
  CLI11_PARSE(app, argc, argv);
  llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  Comparison(options).run();
  return 0;
}
