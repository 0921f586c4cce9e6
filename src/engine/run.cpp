#include "engine/run.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/stopwatch.h"

namespace winnow::engine {
namespace {

// With allow_beyond_context the context is as long as the run needs: n_read positions before the prompt, the prompt, and
// what is generated or, before that, replayed.
SessionOptions with_room(SessionOptions options, const model::Model& model,
                         const policy::Policy& policy, int n_read, const PromptTokens& prompt,
                         int n_predict) {
  if (options.allow_beyond_context) {
    int n_more = std::max(n_predict, 0);
    if (policy.needs().replay.is_wanted()) {
      const ReplayText text = replay_text(model, options.chat, prompt, 0);
      n_more = std::max(n_more, replay_size(text.request, static_cast<int>(text.document.size()),
                                            policy.needs().replay.chunk)
                                    .n_most);
    }
    options.n_ctx = std::max(options.n_ctx > 0 ? options.n_ctx : model.hyper().n_ctx_scaled,
                             n_read + prompt.size() + n_more);
  }
  return options;
}

// Positions that a saved session has, beside those of the prompt.
int n_beside(const SavedSession& saved, const NextPrompt& prompt) {
  const int n_read =
      static_cast<int>(saved.transcript.tokens.size()) + (saved.transcript.pending ? 1 : 0);
  return prompt.is_whole ? std::max(n_read - prompt.tokens.size(), 0) : n_read;
}

}  // namespace

Run::Run(model::Model& model, const policy::Policy& policy, PromptTokens prompt,
         const RunOptions& options)
    : model_(model),
      prompt_(std::move(prompt)),
      options_(options),
      session_(model, policy,
               with_room(options.session, model, policy, 0, prompt_, options.generate.n_predict)) {
  prepare();
}

Run::Run(model::Model& model, SavedSession&& saved, NextPrompt prompt, const RunOptions& options)
    : model_(model),
      options_(options),
      session_(model, std::move(saved),
               with_room(options.session, model, saved.policy, n_beside(saved, prompt),
                         prompt.tokens, options.generate.n_predict)) {
  prompt_ = prompt.is_whole ? session_.rejoin(prompt.tokens) : std::move(prompt.tokens);
  n_cached_ = static_cast<int>(session_.transcript().tokens.size());
  prepare();
}

void Run::prepare() {
  const int n_predict = options_.generate.n_predict;
  plan_ = make_plan(n_predict);
  cache::CacheShape shape = session_.shape();
  shape.max_rows = plan_.max_rows;
  const size_t reserved_bytes = session_.sequence() == nullptr ? shape.reserved_bytes() : 0;
  // How long the answer gets may be open; what is certain is the prompt.
  const Plan certain = n_predict < 0 ? make_plan(0) : plan_;
  check_fits(certain, reserved_bytes, options_.session.engine.n_threads);
  if (options_.chooses_weights) {
    choose_weights(certain, reserved_bytes);
  }
}

void Run::choose_weights(Plan certain, size_t reserved_bytes) {
  const size_t space = available_address_space().bytes;
  const PromptNeeds needs{.n_tokens = prompt_.size(),
                          .planned_bytes = needed_bytes(certain),
                          .available_bytes = std::min(available_memory().bytes,
                                                      space - std::min(space, reserved_bytes))};
  const EngineOptions& engine = options_.session.engine;
  weights_ = engine::choose_weights(model_.file(), needs, engine.n_batch, engine.n_threads);
  if (weights_.expanded_bytes > 0) {
    plan_.expanded_bytes = certain.expanded_bytes = weights_.expanded_bytes;
    check_fits(certain, reserved_bytes, engine.n_threads);
  }
}

// As chosen, unless the file has values that the type has not.
void Run::expand_weights() {
  if (weights_.type == model::WeightType::kFile) {
    return;
  }
  const size_t n_overflows =
      model_.expand_for_prompts(weights_.type, options_.session.engine.n_threads);
  if (n_overflows > 0) {
    log_info(std::to_string(n_overflows) + " weights are too large for " +
             model::weight_type_name(weights_.type) + "; the prompt is read with the file's");
    weights_.type = model::WeightType::kFile;
  }
  weights_.expanded_bytes = model_.expanded_bytes();
  weights_.expand_ms = model_.expand_ms();
}

Plan Run::make_plan(int n_predict) {
  const bool is_all_wanted = options_.keep_all_logits;
  Plan plan = prompt_.size() == 0
                  ? session_.plan_generation(n_predict)
                  : session_.plan(prompt_, n_predict,
                                  is_all_wanted ? WantedLogits::kAll : WantedLogits::kLast);
  const int most = session_.most_generated(prompt_);
  plan.logits_bytes = logits_bytes(n_predict < 0 ? most : std::min(n_predict, most));
  return plan;
}

// Twice what is kept: new logits are appended to those there are, which then move.
size_t Run::logits_bytes(int n_predict) const {
  if (!options_.keep_logits && !options_.keep_all_logits) {
    return 0;
  }
  const auto n_prompt = static_cast<size_t>(options_.keep_all_logits ? prompt_.size() : 1);
  const size_t n_rows = n_prompt + static_cast<size_t>(std::max(n_predict - 1, 0));
  return 2 * n_rows * static_cast<size_t>(model_.hyper().n_vocab) * sizeof(float);
}

RunResult Run::run(const RunCallbacks& callbacks) {
  RunResult result;
  result.n_cached = n_cached_;
  result.order = session_.order();
  result.evict = options_.session.evict;
  const bool is_kept = options_.keep_logits || options_.keep_all_logits;

  if (session_.sequence() == nullptr) {
    session_.reserve(plan_.max_rows, plan_.kept_rows);
  }
  const Stopwatch stopwatch;
  expand_weights();
  result.weights = weights_;
  if (prompt_.size() > 0) {
    const WantedLogits kept = is_kept ? WantedLogits::kLast : WantedLogits::kNone;
    result.logits =
        session_.read(prompt_, {.logits = options_.keep_all_logits ? WantedLogits::kAll : kept,
                                .progress = callbacks.progress,
                                .cancel = callbacks.cancel});
  } else if (is_kept && !session_.transcript().pending) {
    result.logits = session_.transcript().logits;
  }
  result.n_prompt = static_cast<int>(session_.transcript().tokens.size());
  result.n_document = session_.transcript().n_document();
  result.prefill_ms = weights_.measure_ms + stopwatch.ms();

  const auto keep = [&result](const std::vector<float>& logits) {
    result.logits.insert(result.logits.end(), logits.begin(), logits.end());
  };
  GenerateCallbacks generate_callbacks{.on_text = callbacks.on_text, .cancel = callbacks.cancel};
  if (is_kept) {
    generate_callbacks.on_logits = keep;
  }
  Generation generation = session_.generate(options_.generate, generate_callbacks);
  result.answer = std::move(generation.text);
  result.stop = generation.stop;
  result.n_generated = generation.n_generated;
  result.seed = generation.seed;
  result.ttft_ms = result.prefill_ms + generation.first_token_ms;
  result.decode_ms = generation.decode_ms;
  result.footprint = session_.peak_footprint();
  return result;
}

}  // namespace winnow::engine
