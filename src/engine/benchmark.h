// Measures one setting: reading a prompt, or decoding, after a context of some depth.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/plan.h"

namespace winnow::engine {

struct BenchmarkOptions {
  cache::RowType key_type = cache::RowType::kF16;
  cache::RowType value_type = cache::RowType::kF16;
  EvictWhen evict = EvictWhen::kAfterPrompt;
  std::optional<PrefillOrder> order = {};  // default: as default_prefill_order() says
  int depth = 0;                           // positions before what is measured
  int n_sequences = 1;                     // each with a context of its own, going on together
  int max_tokens = 0;                      // most tokens of any test
  int n_repetitions = 5;                   // beside one that warms up
  bool allow_beyond_context = false;
  EngineOptions engine = {};
};

struct BenchmarkTest {
  enum class Kind { kPrompt, kDecode };
  Kind kind = Kind::kPrompt;
  int n_tokens = 0;  // of every sequence
};

// "pp512", "tg32 @ d4096"
std::string test_name(const BenchmarkTest& test, int depth);

// Of all sequences together.
struct Repetition {
  int64_t ns = 0;                    // reading the prompt and cutting it, or decoding
  std::vector<double> step_ms = {};  // of decoding: each step, the evictions after it included
  int64_t first_token_ns = 0;        // of a prompt: until each sequence's next token is chosen
  int64_t n_evictions = 0;
  double eviction_ms = 0;
  size_t kv_now_bytes = 0;
  size_t kv_peak_bytes = 0;
  size_t kv_full_bytes = 0;
  double read_bytes = 0;  // by decoding: weights of every step, and the rows attended to
  double operations = 0;  // of a prompt
};

struct BenchmarkResult {
  std::vector<Repetition> repetitions;  // without the one that warms up
  int budget_rows = 0;                  // per KV head; INT_MAX when unlimited
  Engine::Footprint footprint{};
};

class Benchmark {
 public:
  // `model` must outlive the benchmark. Throws invalid_argument: a context beyond what the model was trained for,
  // before-question eviction.
  Benchmark(const model::Model& model, policy::Policy policy, const BenchmarkOptions& options);

  PrefillOrder order() const { return order_; }

  // The context is pseudo-random tokens of the vocabulary, always the same ones. It is read once, as one prompt, and
  // every repetition starts with copies of it; so rows that a policy takes meanwhile are there again. `progress` takes
  // the fraction of repetitions done. Throws what Engine throws, resource_exhausted where the test does not fit,
  // bad_data where the model's logits are not numbers.
  BenchmarkResult measure(const BenchmarkTest& test, const std::function<void(double)>& progress);

 private:
  cache::CacheShape shape() const;
  // Of so many tokens that are read at once; nothing under most policies.
  ReplaySize replay_size(int n_tokens) const;
  void check_fits(const BenchmarkTest& test);
  void fill(const BenchmarkTest& test);
  std::vector<std::vector<float>> feed(std::span<Sequence> sequences, int first, int n_tokens,
                                       WantedLogits logits);
  Repetition repeat(const BenchmarkTest& test);
  void read_prompt(std::span<Sequence> sequences, int n_tokens, Repetition& repetition);
  void decode(std::span<Sequence> sequences, int n_tokens, Repetition& repetition);

  const model::Model& model_;
  policy::Policy policy_;
  BenchmarkOptions options_;
  PrefillOrder order_;
  Engine engine_;
  std::optional<Sequence> base_;  // the context, read and cut
};

}  // namespace winnow::engine
