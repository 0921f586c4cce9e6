// A run from prompt to answer: plan, prefill, evict, decode, and what it all took.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/plan.h"
#include "engine/prompt.h"
#include "engine/sampling.h"

namespace winnow::engine {

struct SessionOptions {
  cache::RowType key_type = cache::RowType::kF16;
  cache::RowType value_type = cache::RowType::kF16;
  int n_ctx = 0;  // most positions; 0: what the model was trained for
  bool allow_beyond_context = false;
  int n_predict = -1;  // most generated tokens; -1: until the model ends or the context is full
  bool ignore_eos = false;
  EvictWhen evict = EvictWhen::kAfterPrompt;
  // Default: layer-major, but chunk-major where nothing or every chunk is evicted.
  std::optional<PrefillOrder> order;
  SamplingOptions sampling;
  EngineOptions engine;
  bool keep_logits = false;      // of the last prompt token and of every generated one
  bool keep_all_logits = false;  // of every prompt token too
};

struct SessionCallbacks {
  std::function<void(double)> progress;             // of the prompt
  std::function<void(const std::string&)> on_text;  // generated text, as it comes
  const std::atomic<bool>* cancel = nullptr;
};

enum class StopReason { kEndOfText, kLength, kContext, kCancelled };
const char* stop_reason_name(StopReason reason);

struct SessionResult {
  std::string answer;
  StopReason stop = StopReason::kLength;
  int n_prompt = 0;
  int n_document = 0;
  int n_generated = 0;
  uint32_t seed = 0;
  PrefillOrder order = PrefillOrder::kChunkMajor;
  EvictWhen evict = EvictWhen::kAfterPrompt;
  Engine::Footprint footprint{};  // as it was
  double prefill_ms = 0;          // reading the prompt and cutting it
  double ttft_ms = 0;             // from the start of the prompt to the first token
  double decode_ms = 0;           // all tokens after the first
  std::vector<float> logits;      // [n_logits, n_vocab], where asked for

  double prefill_tok_s() const { return prefill_ms > 0 ? n_prompt / prefill_ms * 1000 : 0; }
  double decode_tok_s() const { return decode_ms > 0 ? (n_generated - 1) / decode_ms * 1000 : 0; }
};

class Session {
 public:
  // Plans the run. Throws invalid_argument (prompt beyond the context, a budget that does not work out, before-question
  // without a question), or resource_exhausted when the plan does not fit.
  Session(const model::Model& model, policy::Policy policy, PromptTokens prompt,
          const SessionOptions& options);

  const Plan& plan() const { return plan_; }
  PrefillOrder order() const { return order_; }
  // Exists once run() has started.
  const Sequence* sequence() const { return sequence_ ? &*sequence_ : nullptr; }
  const policy::Policy& policy() const { return sequence_ ? sequence_->policy : policy_; }
  const cache::CacheShape& shape() const { return shape_; }

  // Throws what Engine throws. A cancelled decode is no error: the answer so far comes back.
  SessionResult run(const SessionCallbacks& callbacks);

 private:
  PromptLengths lengths() const;
  Engine::Footprint footprint(int n_predict);
  size_t logits_bytes(int n_predict) const;
  void read_prompt(const SessionCallbacks& callbacks, SessionResult& result);
  void generate(const SessionCallbacks& callbacks, SessionResult& result);

  const model::Model& model_;
  policy::Policy policy_;  // moves into the sequence
  PromptTokens prompt_;
  SessionOptions options_;
  PrefillOrder order_;
  int n_ctx_;
  Engine engine_;
  cache::CacheShape shape_;
  Plan plan_;
  std::optional<Sequence> sequence_;
  std::vector<float> logits_;  // [n_vocab] of the last position
};

}  // namespace winnow::engine
