#include "engine/session.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "base/error.h"
#include "engine/evict.h"

namespace winnow::engine {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// In the order of StopReason.
constexpr std::array<const char*, 4> kStopNames{"end-of-text", "length", "context", "cancelled"};

PrefillOrder choose_order(const SessionOptions& options, const policy::Policy& policy) {
  if (options.order) {
    return *options.order;
  }
  const bool is_one_shot = !policy.is_unlimited() && options.evict != EvictWhen::kPerChunk;
  return is_one_shot ? PrefillOrder::kLayerMajor : PrefillOrder::kChunkMajor;
}

int choose_context(const model::Model& model, const PromptTokens& prompt,
                   const SessionOptions& options) {
  const int trained = model.hyper().n_ctx_train;
  if (options.n_ctx > trained && !options.allow_beyond_context) {
    throw Error(ErrorCode::kInvalidArgument,
                "a context of " + std::to_string(options.n_ctx) + " tokens is beyond the " +
                    std::to_string(trained) +
                    " the model was trained for; --allow-beyond-context permits it");
  }
  int n_ctx = options.n_ctx > 0 ? options.n_ctx : trained;
  if (prompt.size() > n_ctx) {
    if (!options.allow_beyond_context) {
      const std::string advice =
          prompt.size() <= trained
              ? "a context (-c) of up to " + std::to_string(trained) + " has room"
              : "--allow-beyond-context permits it";
      throw Error(ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(prompt.size()) +
                                                   " tokens, the context " + std::to_string(n_ctx) +
                                                   "; " + advice);
    }
    n_ctx = prompt.size();
  }
  if (options.allow_beyond_context && options.n_predict > 0) {
    n_ctx = std::max(n_ctx, prompt.size() + options.n_predict);
  }
  return n_ctx;
}

EngineOptions with_context(EngineOptions options, int n_ctx) {
  options.n_ctx = n_ctx;
  return options;
}

void append(std::vector<float>& all, const std::vector<float>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

}  // namespace

const char* stop_reason_name(StopReason reason) {
  return kStopNames.at(static_cast<size_t>(reason));
}

Session::Session(const model::Model& model, policy::Policy policy, PromptTokens prompt,
                 const SessionOptions& options)
    : model_(model),
      policy_(std::move(policy)),
      prompt_(std::move(prompt)),
      options_(options),
      order_(choose_order(options, policy_)),
      n_ctx_(choose_context(model, prompt_, options)),
      engine_(model, with_context(options.engine, n_ctx_)),
      shape_(cache_shape(model.hyper(), options.key_type, options.value_type, policy_, 0)) {
  if (prompt_.size() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "the prompt is empty");
  }
  if (options.evict == EvictWhen::kBeforeQuestion && prompt_.question.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--evict before-question needs a document (-f) and a question (-p)");
  }
  if (options.evict == EvictWhen::kPerChunk && order_ == PrefillOrder::kLayerMajor) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--evict per-chunk needs --prefill chunk-major, since all layers must have seen a chunk");
  }
  const int room = n_ctx_ - prompt_.size();
  // The last token is not fed, so it needs no room.
  const int n_predict = options.n_predict < 0 ? room + 1 : std::min(options.n_predict, room + 1);
  PlanInput input{.prompt = lengths(),
                  .n_predict = n_predict,
                  .evict = options.evict,
                  .order = order_,
                  .n_batch = options.engine.n_batch};
  plan_ = make_plan(input, shape_, policy_);
  plan_.footprint = footprint(n_predict);
  plan_.logits_bytes = logits_bytes(n_predict);
  shape_.max_rows = plan_.max_rows;
  Plan needed = plan_;
  if (options.n_predict < 0) {  // how long the answer gets is open: what is certain is the prompt
    input.n_predict = 0;
    needed = make_plan(input, shape_, policy_);
    needed.footprint = footprint(0);
    needed.logits_bytes = logits_bytes(0);
  }
  check_fits(needed, shape_, options.engine.n_threads);
}

PromptLengths Session::lengths() const {
  return {.before_question = static_cast<int>(prompt_.before.size() + prompt_.document.size()),
          .document = static_cast<int>(prompt_.document.size()),
          .total = prompt_.size()};
}

// Twice what is kept: new logits are appended to those there are, which then move.
size_t Session::logits_bytes(int n_predict) const {
  if (!options_.keep_logits && !options_.keep_all_logits) {
    return 0;
  }
  const auto n_prompt = static_cast<size_t>(options_.keep_all_logits ? prompt_.size() : 1);
  const size_t n_rows = n_prompt + static_cast<size_t>(std::max(n_predict - 1, 0));
  return 2 * n_rows * static_cast<size_t>(model_.hyper().n_vocab) * sizeof(float);
}

// With before-question eviction the prompt is fed in two parts, and only the scratch for attention sees both.
Engine::Footprint Session::footprint(int n_predict) {
  Engine::Workload work{.n_prompt = prompt_.size(),
                        .n_decoded = std::max(n_predict - 1, 0),
                        .order = order_,
                        .has_all_logits = options_.keep_all_logits};
  Engine::Footprint whole = engine_.footprint(work);
  if (options_.evict == EvictWhen::kBeforeQuestion) {
    work.n_prompt = lengths().before_question;
    const Engine::Footprint first = engine_.footprint(work);
    work.n_prompt = prompt_.size() - work.n_prompt;
    const Engine::Footprint second = engine_.footprint(work);
    whole.graph_bytes = std::max(first.graph_bytes, second.graph_bytes);
    whole.residual_bytes = std::max(first.residual_bytes, second.residual_bytes);
  }
  return whole;
}

SessionResult Session::run(const SessionCallbacks& callbacks) {
  SessionResult result;
  result.n_prompt = prompt_.size();
  result.n_document = static_cast<int>(prompt_.document.size());
  result.order = order_;
  result.evict = options_.evict;
  sequence_.emplace(shape_, std::move(policy_));
  const Clock::time_point start = Clock::now();
  read_prompt(callbacks, result);
  result.prefill_ms = ms_since(start);
  generate(callbacks, result);
  result.ttft_ms += result.prefill_ms;
  result.footprint = engine_.peak_footprint();
  return result;
}

void Session::read_prompt(const SessionCallbacks& callbacks, SessionResult& result) {
  FeedOptions feed{.order = order_,
                   .eviction = options_.evict == EvictWhen::kPerChunk ? PromptEviction::kPerChunk
                                                                      : PromptEviction::kAfter,
                   .progress = callbacks.progress,
                   .cancel = callbacks.cancel};
  const WantedLogits wanted = options_.keep_all_logits ? WantedLogits::kAll : WantedLogits::kLast;
  const auto feed_tokens = [&](const std::vector<Token>& tokens, WantedLogits want) {
    const Feed part{.sequence = &*sequence_, .tokens = tokens, .logits = want};
    return std::move(engine_.feed({&part, 1}, feed)[0]);
  };
  std::vector<float> logits;
  if (options_.evict == EvictWhen::kBeforeQuestion) {
    // A budget in percent covers the document; the question's rows come on top when it is read.
    sequence_->policy.resolve(budget_context(lengths(), false, shape_));
    append(result.logits,
           feed_tokens(prompt_.up_to_question(),
                       options_.keep_all_logits ? WantedLogits::kAll : WantedLogits::kNone));
    sequence_->policy.resolve(budget_context(lengths(), true, shape_));
    sequence_->evicted_during_prompt |= sequence_->cache.rows_evicted() > 0;
    logits = feed_tokens(prompt_.from_question(), wanted);
  } else {
    logits = feed_tokens(prompt_.all(), wanted);
  }
  const auto n_vocab = static_cast<size_t>(model_.hyper().n_vocab);
  logits_.assign(logits.end() - static_cast<std::ptrdiff_t>(n_vocab), logits.end());
  if (options_.keep_all_logits || options_.keep_logits) {
    append(result.logits, logits);
  }
}

void Session::generate(const SessionCallbacks& callbacks, SessionResult& result) {
  Sampler sampler(options_.sampling);
  result.seed = sampler.seed();
  const int limit = options_.n_predict < 0 ? INT32_MAX : options_.n_predict;
  const Clock::time_point start = Clock::now();
  Clock::time_point first_token = start;
  while (true) {
    if (result.n_generated == limit) {
      result.stop = StopReason::kLength;
      break;
    }
    if (callbacks.cancel != nullptr && callbacks.cancel->load()) {
      result.stop = StopReason::kCancelled;
      break;
    }
    const Token token = sampler.sample(logits_);
    ++result.n_generated;
    if (result.n_generated == 1) {
      first_token = Clock::now();
    }
    if (model_.vocabulary().ends_generation(token) && !options_.ignore_eos) {
      result.stop = StopReason::kEndOfText;
      break;
    }
    const std::string piece = model_.vocabulary().piece(token);
    result.answer += piece;
    if (callbacks.on_text) {
      callbacks.on_text(piece);
    }
    if (result.n_generated == limit) {
      continue;
    }
    if (sequence_->positions_fed == n_ctx_) {
      result.stop = StopReason::kContext;
      break;
    }
    const DecodeInput input{.sequence = &*sequence_, .token = token};
    logits_ = engine_.decode({&input, 1});
    if (options_.keep_all_logits || options_.keep_logits) {
      append(result.logits, logits_);
    }
  }
  result.ttft_ms = std::chrono::duration<double, std::milli>(first_token - start).count();
  result.decode_ms = result.n_generated > 1 ? ms_since(first_token) : 0;
}

}  // namespace winnow::engine
