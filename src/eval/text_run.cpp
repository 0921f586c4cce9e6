#include "eval/text_run.h"

#include "base/error.h"
#include "engine/plan.h"

namespace winnow::eval {
namespace {

using engine::Sequence;
using engine::WantedLogits;
using model::Token;

engine::EngineOptions with_context(engine::EngineOptions options, int n_ctx) {
  options.n_ctx = n_ctx;
  return options;
}

}  // namespace

TextRun::TextRun(const model::Model& model, const ModelSettings& settings, int n_positions,
                 const policy::Needs& needs, const std::atomic<bool>* cancel, int n_replayed)
    : model_(model),
      settings_(settings),
      n_positions_(n_positions + n_replayed),
      cancel_(cancel),
      engine_(model, with_context(settings.engine, n_positions_)),
      parallel_(settings.engine.n_threads),
      base_(empty_sequence(policy::Policy::full(needs))) {}

std::vector<float> TextRun::read(std::span<const Token> context,
                                 kernels::ActivationObserver* observer) {
  context_.assign(context.begin(), context.end());
  return feed(base_, context, WantedLogits::kLast, engine::PromptEviction::kNever, observer);
}

Sequence TextRun::arm(const Arm& arm, int n_document) {
  policy::Policy policy = arm.policy;
  const engine::ReadPrompt prompt{
      .begin = 0, .document_begin = 0, .document_end = n_document, .end = n_document};
  policy.resolve(engine::budget_context({&prompt, 1}, policy, base_.cache.shape()));
  if (arm.question == QuestionMode::kLegacyOrder) {
    if (context_.empty()) {
      throw Error(ErrorCode::kInvalidArgument,
                  "legacy order is about prompts, and this text is fed token by token");
    }
    Sequence sequence = empty_sequence(std::move(policy));
    feed(sequence, context_, WantedLogits::kNone, engine::PromptEviction::kLegacyOrder);
    return sequence;
  }
  const bool is_replayed = policy.needs().replay.is_wanted();
  if (is_replayed && context_.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() +
                    "' has documents replayed, and this text is fed token by token");
  }
  // A copy has what its policy needs of the queries that were read; where none were, it collects them itself.
  if (base_.positions_fed == 0) {
    return empty_sequence(std::move(policy));
  }
  engine::ForkOptions options{.policy = std::move(policy)};
  if (is_replayed) {
    options.replays.push_back(replay());
  }
  return engine_.fork(base_, std::move(options));
}

// The text as a document whose turn is open.
engine::ReplayText TextRun::replay() const {
  const model::Vocabulary& vocabulary = model_.vocabulary();
  const bool has_bos = vocabulary.adds_bos() && context_.front() == vocabulary.bos();
  return {.request = engine::replay_request(model_, settings_.chat, /*is_turn_open=*/true),
          .document_begin = has_bos ? 1 : 0,
          .document = {context_.begin() + (has_bos ? 1 : 0), context_.end()}};
}

std::vector<float> TextRun::feed(Sequence& sequence, std::span<const Token> tokens) {
  if (!sequence.policy.page_rule().is_wanted()) {
    return feed(sequence, tokens, WantedLogits::kAll, engine::PromptEviction::kNever);
  }
  std::vector<float> all;  // pages are read by generated tokens alone
  std::vector<float> logits;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const engine::StepInput input{
        .sequence = &sequence, .tokens = tokens.subspan(i, 1), .cut = engine::Cut::kNever};
    step({&input, 1}, logits);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

void TextRun::step(std::span<const engine::StepInput> inputs, std::vector<float>& logits) {
  check_cancel(cancel_);
  engine_.step(inputs, logits);
}

std::span<const float> TextRun::row(const std::vector<float>& logits, size_t i) const {
  const auto n_vocab = static_cast<size_t>(model_.hyper().n_vocab);
  return std::span(logits).subspan(i * n_vocab, n_vocab);
}

Sequence TextRun::empty_sequence(policy::Policy policy) {
  cache::CacheShape shape = engine::cache_shape(model_.hyper(), settings_.key_type,
                                                settings_.value_type, policy, n_positions_);
  shape.is_remote = settings_.engine.is_on_gpu;
  return {shape, std::move(policy), engine_.make_rows(shape)};
}

std::vector<float> TextRun::feed(Sequence& sequence, std::span<const Token> tokens,
                                 WantedLogits wanted, engine::PromptEviction eviction,
                                 kernels::ActivationObserver* observer) {
  check_cancel(cancel_);
  const engine::Feed feed{
      .sequence = &sequence, .tokens = tokens, .logits = wanted, .observer = observer};
  return engine_.feed({&feed, 1}, {.eviction = eviction, .progress = {}, .cancel = cancel_})[0];
}

}  // namespace winnow::eval
