#include "engine/benchmark.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "engine/device_runner.h"
#include "engine/prompt.h"
#include "engine/sampling.h"
#include "engine/work.h"

namespace winnow::engine {
namespace {

Token token_at(int position, int n_vocab) {
  return static_cast<Token>(splitmix64(static_cast<uint64_t>(position)) %
                            static_cast<uint64_t>(n_vocab));
}

// Tokens of all sequences, which plans count in one int.
constexpr int kMaxTogether = 1 << 30;

const BenchmarkOptions& checked(const model::Model& model, const BenchmarkOptions& options) {
  if (!options.allow_beyond_context) {
    check_context(model.hyper(), options.depth + options.max_tokens);
  }
  const int64_t n_together =
      int64_t{options.n_sequences} * (int64_t{options.depth} + options.max_tokens);
  if (n_together > kMaxTogether) {
    throw Error(ErrorCode::kInvalidArgument,
                std::to_string(options.n_sequences) + " sequences of " +
                    std::to_string(options.depth + options.max_tokens) +
                    " tokens are too many (at most " + std::to_string(kMaxTogether) +
                    " tokens together)");
  }
  if (options.evict != EvictWhen::kAfterPrompt && options.evict != EvictWhen::kPerChunk) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("a benchmark has no question to evict before, and attends first; "
                            "--evict ") +
                    evict_when_name(options.evict) + " (allowed: after-prompt, per-chunk)");
  }
  return options;
}

}  // namespace

std::string test_name(const BenchmarkTest& test, int depth) {
  return (test.kind == BenchmarkTest::Kind::kPrompt ? "pp" : "tg") + std::to_string(test.n_tokens) +
         (depth > 0 ? " @ d" + std::to_string(depth) : "");
}

Benchmark::Benchmark(const model::Model& model, policy::Policy policy,
                     const BenchmarkOptions& options)
    : model_(model),
      policy_(std::move(policy)),
      options_(checked(model, options)),
      order_(options.order.value_or(default_prefill_order(policy_, options.evict))),
      engine_(model, options.engine) {}

BenchmarkResult Benchmark::measure(const BenchmarkTest& test,
                                   const std::function<void(double)>& progress) {
  WINNOW_CHECK(test.n_tokens > 0 && test.n_tokens <= options_.max_tokens);
  progress(0);
  fill(test);
  repeat(test);  // warms up
  BenchmarkResult result;
  for (int i = 0; i < options_.n_repetitions; ++i) {
    progress(static_cast<double>(i + 1) / (options_.n_repetitions + 1));
    result.repetitions.push_back(repeat(test));
  }
  result.budget_rows = base_->policy.budget_rows();
  result.footprint = engine_.peak_footprint();
  return result;
}

ReplaySize Benchmark::replay_size(int n_tokens) const {
  const policy::Replay replay = policy_.needs().replay;
  return replay.is_wanted() ? engine::replay_size(replay_request(model_, {}, /*is_turn_open=*/true),
                                                  n_tokens, replay.chunk)
                            : ReplaySize{};
}

cache::CacheShape Benchmark::shape() const {
  const int n_read = std::max(options_.depth, options_.max_tokens);
  cache::CacheShape shape =
      cache_shape(model_.hyper(), options_.key_type, options_.value_type, policy_,
                  options_.depth + options_.max_tokens + 1 + replay_size(n_read).n_most);
  shape.is_remote = options_.engine.is_on_gpu;
  if (policy_.is_resolved() && !policy_.is_unlimited()) {
    const int n_layers = shape.n_layers - shape.n_windowed_layers();
    shape.kept_rows = static_cast<int>(
        std::min<int64_t>(policy_.most_held_rows(n_layers, shape.n_kv_heads), shape.max_rows));
  }
  return shape;
}

// The context itself stays beside its copies; it may be there already.
void Benchmark::check_fits(const BenchmarkTest& test) {
  const bool is_prompt = test.kind == BenchmarkTest::Kind::kPrompt;
  const int n_prompt = options_.depth + (is_prompt ? test.n_tokens : 0);
  const int n_decoded = is_prompt ? 0 : test.n_tokens;
  const ReplaySize replay = replay_size(std::max(options_.depth, is_prompt ? test.n_tokens : 0));
  Plan plan = make_plan({.prompt = {.document_end = n_prompt, .end = n_prompt},
                         .n_predict = n_decoded + 1,
                         .evict = options_.evict,
                         .order = order_,
                         .n_batch = options_.engine.n_batch,
                         .replay = replay},
                        shape(), policy_);
  const auto n_caches = static_cast<size_t>(options_.n_sequences + (base_ ? 0 : 1));
  plan.kv_peak_bytes *= n_caches;
  plan.policy_bytes = policy_bytes(model_.hyper(), shape(), policy_) * n_caches;
  const Engine::Workload work{
      .n_held = options_.depth,
      .n_prompt = is_prompt ? std::max(options_.depth, options_.n_sequences * test.n_tokens)
                            : std::max(options_.depth, 1),
      .n_decoded = n_decoded,
      .order = order_,
      .has_all_logits = false,
      .n_mass_rows = shape().stores_mass ? cache::Cache::most_slots(plan.max_rows) : 0,
      .needs_turns = needs_turns(policy_),
      .is_compared = policy_.needs().residual_similarity,
      .has_chunks = policy_.needs().chunk_attention.is_wanted(),
      .n_rows = shape().max_rows,
      .is_contiguous = policy_.is_contiguous(),
      .n_replayed = replay.n_most,
      .replay_bytes =
          replay_bytes(model_.hyper(), shape(), policy_, replay, options_.engine.n_threads)};
  plan.footprint = engine_.footprint(work);
  if (options_.engine.is_on_gpu) {
    plan.gpu_bytes =
        engine_.gpu_bytes(work, shape(), policy_.needs()) +
        (n_caches - 1) * DeviceRunner::rows_bytes(shape(), order_ == PrefillOrder::kLayerMajor);
  }
  engine::check_fits(plan, shape().reserved_bytes() * n_caches, options_.engine.n_threads);
}

// A budget in percent refers to the whole prompt, so that it may change from test to test.
void Benchmark::fill(const BenchmarkTest& test) {
  const bool is_prompt = test.kind == BenchmarkTest::Kind::kPrompt;
  const int n_document = options_.depth + (is_prompt ? test.n_tokens : 0);
  const ReadPrompt document{.document_end = n_document, .end = n_document};
  policy_.resolve(budget_context({&document, 1}, policy_, shape()));
  if (base_ && base_->policy.budget_rows() != policy_.budget_rows()) {
    base_.reset();
  }
  check_fits(test);
  if (base_) {
    return;
  }
  base_.emplace(shape(), policy_, engine_.make_rows(shape()));
  if (options_.depth > 0) {
    feed({&*base_, 1}, 0, options_.depth, WantedLogits::kNone);
  }
}

std::vector<std::vector<float>> Benchmark::feed(std::span<Sequence> sequences, int first,
                                                int n_tokens, WantedLogits logits) {
  std::vector<Token> tokens;
  for (int i = 0; i < n_tokens; ++i) {
    tokens.push_back(token_at(first + i, model_.hyper().n_vocab));
  }
  std::vector<Feed> feeds;
  ReplayText replay;
  if (policy_.needs().replay.is_wanted()) {
    replay = {.request = replay_request(model_, {}, /*is_turn_open=*/true),
              .document_begin = first,
              .document = tokens};
  }
  for (Sequence& sequence : sequences) {
    feeds.push_back({.sequence = &sequence, .tokens = tokens, .logits = logits, .replay = &replay});
  }
  return engine_.feed(
      feeds, {.order = order_, .eviction = prompt_eviction(options_.evict), .progress = {}});
}

Repetition Benchmark::repeat(const BenchmarkTest& test) {
  std::vector<Sequence> sequences;
  for (int i = 0; i < options_.n_sequences; ++i) {
    sequences.push_back(engine_.fork(*base_, {}));
  }
  Repetition repetition;
  if (test.kind == BenchmarkTest::Kind::kPrompt) {
    read_prompt(sequences, test.n_tokens, repetition);
  } else {
    decode(sequences, test.n_tokens, repetition);
  }
  for (const Sequence& sequence : sequences) {
    repetition.n_evictions += sequence.evictions.count - base_->evictions.count;
    repetition.eviction_ms += sequence.evictions.ms - base_->evictions.ms;
    repetition.kv_now_bytes += sequence.cache.now_bytes();
    repetition.kv_peak_bytes += sequence.cache.peak_bytes();
    repetition.kv_full_bytes += sequence.cache.shape().full_bytes(sequence.positions_fed);
  }
  return repetition;
}

void Benchmark::read_prompt(std::span<Sequence> sequences, int n_tokens, Repetition& repetition) {
  for (const Sequence& sequence : sequences) {
    repetition.operations += prompt_operations(model_, sequence.cache, n_tokens);
  }
  Sampler sampler({.temperature = 0});
  const Stopwatch stopwatch;
  const auto logits = feed(sequences, options_.depth, n_tokens, WantedLogits::kLast);
  repetition.ns = stopwatch.ns();
  for (const std::vector<float>& last : logits) {
    sampler.sample(last);
  }
  repetition.first_token_ns = stopwatch.ns();
}

// The next tokens are given, so that nothing is measured but decoding.
void Benchmark::decode(std::span<Sequence> sequences, int n_tokens, Repetition& repetition) {
  Token token = 0;
  std::vector<StepInput> inputs;
  for (Sequence& sequence : sequences) {
    inputs.push_back({.sequence = &sequence, .tokens = {&token, 1}});
  }
  std::vector<float> logits;
  repetition.step_ms.reserve(static_cast<size_t>(n_tokens));
  const Stopwatch stopwatch;
  for (int i = 0; i < n_tokens; ++i) {
    const Stopwatch step;
    token = token_at(options_.depth + i, model_.hyper().n_vocab);
    for (const Sequence& sequence : sequences) {
      repetition.read_bytes += static_cast<double>(attended_bytes(sequence.cache));
    }
    engine_.step(inputs, logits);
    repetition.step_ms.push_back(step.ms());
  }
  repetition.ns = stopwatch.ns();
  repetition.read_bytes += static_cast<double>(step_weight_bytes(model_)) * n_tokens;
  const auto n_vocab = static_cast<size_t>(model_.hyper().n_vocab);
  Sampler({.temperature = 0}).sample({logits.data(), n_vocab});  // throws bad_data on NaN
}

}  // namespace winnow::engine
