#include "eval/ppl.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/stopwatch.h"
#include "base/text.h"
#include "eval/kept.h"
#include "eval/likelihood.h"

namespace winnow::eval {
namespace {

using engine::Sequence;
using engine::WantedLogits;
using model::Token;

constexpr int kBlock = 64;  // targets whose logits are held at once
constexpr double kLoopedShare =
    0.2;  // of a text's stretches; beyond, it is repeated to fill a length

// All that has been read is the document.
policy::Policy resolved(policy::Policy policy, int n_document, const cache::CacheShape& shape) {
  const engine::ReadPrompt prompt{
      .begin = 0, .document_begin = 0, .document_end = n_document, .end = n_document};
  policy.resolve(engine::budget_context({&prompt, 1}, policy, shape));
  return policy;
}

// An arm on its way through a text.
struct ArmState {
  Record record;
  Sequence sequence;
  PositionLoss sum = {};
  double reference_nll = 0;  // a sum likewise
  int n_scored = 0;

  void add(const PositionLoss& loss, double nll_of_reference) {
    sum.nll += loss.nll;
    sum.kl += loss.kl;
    sum.top1 += loss.top1;
    sum.top5 += loss.top5;
    reference_nll += nll_of_reference;
    ++n_scored;
  }
  std::map<std::string, double> metrics() const {
    const auto mean = [&](double value) { return value / n_scored; };
    return {{"nll", mean(sum.nll)},
            {"kl", mean(sum.kl)},
            {"top1", mean(sum.top1)},
            {"top5", mean(sum.top5)},
            {"delta_ll", mean(reference_nll - sum.nll)},
            {"n_scored", static_cast<double>(n_scored)}};
  }
};

// All arms on one window of text; the first is the reference.
class WindowRun {
 public:
  WindowRun(const model::Model& model, const ModelSettings& settings, const TextWindow& window,
            const policy::Policy& watching, const std::atomic<bool>* cancel)
      : model_(model),
        tokens_(window.tokens),
        cancel_(cancel),
        engine_(model, with_context(settings.engine, n_tokens())),
        parallel_(settings.engine.n_threads),
        settings_(settings),
        base_(empty_sequence(watching)) {}

  int n_tokens() const { return static_cast<int>(tokens_.size()); }
  std::vector<ArmState>& arms() { return arms_; }

  void read_context(int n_context) {
    feed(base_, tokens_.first(static_cast<size_t>(n_context)), WantedLogits::kNone);
  }

  // Throws invalid_argument where the budget does not work out.
  void add_arm(Record record, const policy::Policy& policy, int n_document) {
    policy::Policy cut = resolved(policy, n_document, base_.cache.shape());
    const Stopwatch stopwatch;
    // A copy has what its policy needs of the queries that were read; where none were, it collects them itself.
    arms_.push_back(
        {.record = std::move(record),
         .sequence = base_.positions_fed > 0
                         ? engine_.fork(base_, {.policy = std::move(cut), .max_rows = 0})
                         : empty_sequence(std::move(cut))});
    arms_.back().record.compress_ms = stopwatch.ms();
    record_kept(arms_.back().sequence, arms_.back().record);
  }

  // The text after the context, of which the first token is fed and not scored.
  void score_after(int n_context) {
    const int n_targets = n_tokens() - n_context - 1;
    for (int begin = 0; begin < n_targets; begin += kBlock) {
      check_cancel();
      const auto n = static_cast<size_t>(std::min(kBlock, n_targets - begin));
      const auto first = static_cast<size_t>(n_context + begin);
      score_block(tokens_.subspan(first, n), tokens_.subspan(first + 1, n));
    }
  }

  // The whole text, a token at a time in one batch of all arms.
  void score_token_by_token() {
    std::vector<float> logits;
    std::vector<engine::StepInput> inputs(arms_.size());
    std::vector<PositionLoss> losses(arms_.size());
    for (size_t i = 0; i + 1 < tokens_.size(); ++i) {
      check_cancel();
      for (size_t arm = 0; arm < arms_.size(); ++arm) {
        inputs[arm] = {.sequence = &arms_[arm].sequence, .tokens = tokens_.subspan(i, 1)};
      }
      engine_.step(inputs, logits);
      const Reference reference(row(logits, 0));
      parallel_.run(static_cast<int>(arms_.size()), [&](int item, int /*thread*/) {
        const auto arm = static_cast<size_t>(item);
        losses[arm] = reference.compare(row(logits, arm), tokens_[i + 1]);
      });
      for (size_t arm = 0; arm < arms_.size(); ++arm) {
        arms_[arm].add(losses[arm], losses[0].nll);
      }
    }
  }

 private:
  Sequence empty_sequence(policy::Policy policy) const {
    const cache::CacheShape shape = engine::cache_shape(model_.hyper(), settings_.key_type,
                                                        settings_.value_type, policy, n_tokens());
    return {shape, std::move(policy)};
  }

  static engine::EngineOptions with_context(engine::EngineOptions options, int n_ctx) {
    options.n_ctx = n_ctx;
    return options;
  }

  void check_cancel() const {
    if (cancel_ != nullptr && cancel_->load()) {
      throw Error(ErrorCode::kCancelled, "the evaluation was cancelled");
    }
  }

  std::vector<float> feed(Sequence& sequence, std::span<const Token> tokens, WantedLogits wanted) {
    const engine::Feed feed{.sequence = &sequence, .tokens = tokens, .logits = wanted};
    return engine_.feed(
        {&feed, 1},
        {.eviction = engine::PromptEviction::kNever, .progress = {}, .cancel = cancel_})[0];
  }

  std::span<const float> row(const std::vector<float>& logits, size_t i) const {
    const auto n_vocab = static_cast<size_t>(model_.hyper().n_vocab);
    return std::span(logits).subspan(i * n_vocab, n_vocab);
  }

  void score_block(std::span<const Token> fed, std::span<const Token> targets) {
    std::vector<Reference> references;
    std::vector<double> reference_nll;
    std::vector<PositionLoss> losses(targets.size());
    for (ArmState& arm : arms_) {
      const std::vector<float> logits = feed(arm.sequence, fed, WantedLogits::kAll);
      for (size_t i = references.size(); i < targets.size(); ++i) {
        references.emplace_back(row(logits, i));
        reference_nll.push_back(negative_log_likelihood(row(logits, i), targets[i]));
      }
      parallel_.run(static_cast<int>(targets.size()), [&](int item, int /*thread*/) {
        const auto i = static_cast<size_t>(item);
        losses[i] = references[i].compare(row(logits, i), targets[i]);
      });
      for (size_t i = 0; i < losses.size(); ++i) {
        arm.add(losses[i], reference_nll[i]);
      }
    }
  }

  const model::Model& model_;
  std::span<const Token> tokens_;
  const std::atomic<bool>* cancel_;
  engine::Engine engine_;
  kernels::ParallelFor parallel_;
  const ModelSettings& settings_;
  Sequence base_;
  std::vector<ArmState> arms_;
};

// What a record says of the text.
void describe(const TextWindow& window, bool is_looped, Record& record) {
  record.id = window.name + "@" + std::to_string(window.begin);
  record.labels["document"] = window.name;
  if (is_looped) {
    record.labels["looped"] = "yes";
  }
  record.prompt_hash = content_hash(std::as_bytes(std::span(window.tokens)));
}

}  // namespace

// Throws invalid_argument: beyond the context, not enough text, text that repeats itself.
TextWindow Ppl::window_of(const SampleId& sample) const {
  const int n_tokens = sample.n_tokens + (options_.n_targets > 0 ? options_.n_targets + 1 : 0);
  if (!settings_.allow_beyond_context) {
    engine::check_context(model_.hyper(), n_tokens);
  }
  TextWindow window =
      text_window(texts_, model_.vocabulary(), n_tokens, sample.index, options_.n_windows);
  const double share = repeated_share(window.tokens);
  if (share > kLoopedShare && !options_.allow_looped) {
    throw Error(ErrorCode::kInvalidArgument,
                rounded_text(100 * share, 0) + " % of the text ('" + window.name + "' from token " +
                    std::to_string(window.begin) +
                    " on) repeats what came before: its likelihood says little "
                    "(--allow-looped measures it, labelled)");
  }
  return window;
}

void Ppl::measure(const SampleId& sample, std::span<const Arm> arms,
                  const std::function<void(Record)>& done, const std::atomic<bool>* cancel) {
  const auto refuse = [&](std::span<const Arm> refused, const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) {
      throw;
    }
    for (const Arm& arm : refused) {
      Record record = record_for(sample, arm);
      record.refused = error.what();
      done(std::move(record));
    }
  };
  TextWindow window;
  try {
    window = window_of(sample);
  } catch (const Error& error) {
    refuse(arms, error);
    return;
  }
  const bool is_looped = repeated_share(window.tokens) > kLoopedShare;
  const bool has_context = options_.n_targets > 0;
  WindowRun run(model_, settings_, window, policy::Policy::full(needs_of(arms)), cancel);
  const Stopwatch prefill;
  if (has_context) {
    run.read_context(sample.n_tokens);
  }
  const double prefill_ms = prefill.ms();
  // The reference comes first, whether its own record is wanted or not.
  const bool is_full_wanted = arms.front().is_full();
  if (!is_full_wanted) {
    run.add_arm({}, policy::Policy::parse("full"), sample.n_tokens);
  }
  for (const Arm& arm : arms) {
    Record record = record_for(sample, arm);
    describe(window, is_looped, record);
    record.n_prompt = record.n_document = sample.n_tokens;
    record.prefill_ms = prefill_ms;
    try {
      run.add_arm(std::move(record), arm.policy, sample.n_tokens);
    } catch (const Error& error) {
      refuse({&arm, 1}, error);
    }
  }
  const Stopwatch scoring;
  if (has_context) {
    run.score_after(sample.n_tokens);
  } else {
    run.score_token_by_token();
  }
  const double ms_per_arm = scoring.ms() / static_cast<double>(run.arms().size());
  const int n_fed = run.n_tokens() - 1;
  for (ArmState& state : std::span(run.arms()).subspan(is_full_wanted ? 0 : 1)) {
    state.record.answer_ms = ms_per_arm;
    state.record.metrics = state.metrics();
    if (!has_context) {
      record_kept(state.sequence, state.record);
    }
    record_end(state.sequence, n_fed, has_context ? options_.n_targets : 0, state.record);
    done(std::move(state.record));
  }
}

}  // namespace winnow::eval
