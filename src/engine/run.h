// A run from prompt to answer: planned and checked beforehand, measured on the way.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/session.h"
#include "engine/session_file.h"
#include "engine/weight_choice.h"

namespace winnow::engine {

struct RunOptions {
  SessionOptions session;
  GenerateOptions generate;
  bool keep_logits = false;      // of the last prompt token and of every generated one
  bool keep_all_logits = false;  // of every prompt token too
  // Expands weights for the prompt where that pays. The model has the file's.
  bool chooses_weights = false;
};

struct RunCallbacks {
  std::function<void(double)> progress = {};             // of the prompt
  std::function<void(const std::string&)> on_text = {};  // generated text, as it comes
  const std::atomic<bool>* cancel = nullptr;
};

struct RunResult {
  std::string answer;
  StopReason stop = StopReason::kLength;
  int n_prompt = 0;    // all that was read before the answer
  int n_cached = 0;    // of them, those that a saved session had read
  int n_document = 0;  // of them, those that a percentage refers to
  int n_generated = 0;
  uint32_t seed = 0;
  PrefillOrder order = PrefillOrder::kChunkMajor;
  EvictWhen evict = EvictWhen::kAfterPrompt;
  Engine::Footprint footprint{};  // as it was
  WeightChoice weights;           // as it was carried out
  double prefill_ms = 0;      // choosing and expanding weights, reading the prompt and cutting it
  double ttft_ms = 0;         // from the start of the prompt to the first token
  double decode_ms = 0;       // all tokens after the first
  std::vector<float> logits;  // [n_logits, n_vocab], where asked for

  double prefill_tok_s() const {
    return prefill_ms > 0 ? (n_prompt - n_cached) / prefill_ms * 1000 : 0;
  }
  double decode_tok_s() const { return decode_ms > 0 ? (n_generated - 1) / decode_ms * 1000 : 0; }
};

// What a saved session goes on with.
struct NextPrompt {
  PromptTokens tokens;  // none: the answer goes on
  // They begin where the session did, and are read from where the two part. Otherwise they follow what was read.
  bool is_whole = false;
};

class Run {
 public:
  // Plans the run, and measures where it may choose weights. Throws what Session throws, or resource_exhausted when the
  // plan does not fit.
  Run(model::Model& model, const policy::Policy& policy, PromptTokens prompt,
      const RunOptions& options);
  // Throws what Session::rejoin throws too.
  Run(model::Model& model, SavedSession&& saved, NextPrompt prompt, const RunOptions& options);

  const Plan& plan() const { return plan_; }
  const WeightChoice& weights() const { return weights_; }
  const model::Model& model() const { return model_; }
  const Session& session() const { return session_; }

  // Once. Throws what Session throws. A cancelled decode is no error: the answer so far comes back.
  RunResult run(const RunCallbacks& callbacks);

 private:
  void prepare();
  Plan make_plan(int n_predict);
  size_t logits_bytes(int n_predict) const;
  void choose_weights(Plan certain, size_t reserved_bytes);
  void expand_weights();

  model::Model& model_;
  PromptTokens prompt_;
  RunOptions options_;
  Session session_;
  int n_cached_ = 0;  // positions before the prompt
  Plan plan_;
  WeightChoice weights_;
};

}  // namespace winnow::engine
