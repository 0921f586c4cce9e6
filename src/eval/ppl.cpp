#include "eval/ppl.h"

#include <algorithm>

#include "base/error.h"
#include "base/stopwatch.h"
#include "eval/kept.h"
#include "eval/likelihood.h"
#include "eval/text_run.h"

namespace winnow::eval {
namespace {

using engine::Sequence;
using model::Token;

constexpr int kBlock = 64;  // targets whose logits are held at once

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

// Feeds a block of tokens to all arms, the first of which is the reference, and scores the tokens that follow each.
void score_block(TextRun& run, std::span<const Token> fed, std::span<const Token> targets,
                 std::vector<ArmState>& arms) {
  std::vector<Reference> references;
  std::vector<double> reference_nll;
  std::vector<PositionLoss> losses(targets.size());
  for (ArmState& arm : arms) {
    const std::vector<float> logits = run.feed(arm.sequence, fed);
    for (size_t i = references.size(); i < targets.size(); ++i) {
      references.emplace_back(run.row(logits, i));
      reference_nll.push_back(negative_log_likelihood(run.row(logits, i), targets[i]));
    }
    run.parallel().run(static_cast<int>(targets.size()), [&](int item, int /*thread*/) {
      const auto i = static_cast<size_t>(item);
      losses[i] = references[i].compare(run.row(logits, i), targets[i]);
    });
    for (size_t i = 0; i < losses.size(); ++i) {
      arm.add(losses[i], reference_nll[i]);
    }
  }
}

// The text after the context, of which the first token is fed and not scored.
void score_after(TextRun& run, std::span<const Token> tokens, int n_context,
                 std::vector<ArmState>& arms) {
  const int n_targets = static_cast<int>(tokens.size()) - n_context - 1;
  for (int begin = 0; begin < n_targets; begin += kBlock) {
    const auto n = static_cast<size_t>(std::min(kBlock, n_targets - begin));
    const auto first = static_cast<size_t>(n_context + begin);
    score_block(run, tokens.subspan(first, n), tokens.subspan(first + 1, n), arms);
  }
}

// The whole text, a token at a time in one batch of all arms.
void score_token_by_token(TextRun& run, std::span<const Token> tokens,
                          std::vector<ArmState>& arms) {
  std::vector<float> logits;
  std::vector<engine::StepInput> inputs(arms.size());
  std::vector<PositionLoss> losses(arms.size());
  for (size_t i = 0; i + 1 < tokens.size(); ++i) {
    for (size_t arm = 0; arm < arms.size(); ++arm) {
      inputs[arm] = {.sequence = &arms[arm].sequence, .tokens = tokens.subspan(i, 1)};
    }
    run.step(inputs, logits);
    const Reference reference(run.row(logits, 0));
    run.parallel().run(static_cast<int>(arms.size()), [&](int item, int /*thread*/) {
      const auto arm = static_cast<size_t>(item);
      losses[arm] = reference.compare(run.row(logits, arm), tokens[i + 1]);
    });
    for (size_t arm = 0; arm < arms.size(); ++arm) {
      arms[arm].add(losses[arm], losses[0].nll);
    }
  }
}

}  // namespace

void Ppl::measure(const SampleId& sample, std::span<const Arm> arms,
                  const std::function<void(Record)>& done, const std::atomic<bool>* cancel) {
  const bool has_context = n_targets_ > 0;
  const int n_tokens = sample.n_tokens + (has_context ? n_targets_ + 1 : 0);
  TextWindow window;
  try {
    window = window_of(sample, n_tokens, n_tokens);
  } catch (const Error& error) {
    refuse(sample, arms, error, done);
    return;
  }
  TextRun run(model_, settings_, n_tokens, needs_of(arms), cancel,
              has_context ? replay_room(model_, settings_, arms, sample.n_tokens) : 0);
  const Stopwatch prefill;
  if (has_context) {
    run.read(std::span(window.tokens).first(static_cast<size_t>(sample.n_tokens)));
  }
  const double prefill_ms = prefill.ms();
  std::vector<ArmState> states;
  // The reference comes first, whether its own record is wanted or not.
  const bool is_full_wanted = arms.front().is_full();
  if (!is_full_wanted) {
    states.push_back(
        {.record = {}, .sequence = run.arm({.policy = policy::Policy::full()}, n_tokens)});
  }
  for (const Arm& arm : arms) {
    Record record = record_on(window, sample, arm);
    record.prefill_ms = prefill_ms;
    try {
      check_suits(arm.policy, window);
      const Stopwatch compress;
      states.push_back({.record = std::move(record), .sequence = run.arm(arm, sample.n_tokens)});
      states.back().record.compress_ms = compress.ms();
      record_kept(states.back().sequence, model_.hyper(), states.back().record);
    } catch (const Error& error) {
      refuse(sample, {&arm, 1}, error, done);
    }
  }
  const Stopwatch scoring;
  if (has_context) {
    score_after(run, window.tokens, sample.n_tokens, states);
  } else {
    score_token_by_token(run, window.tokens, states);
  }
  const double ms_per_arm = scoring.ms() / static_cast<double>(states.size());
  for (ArmState& state : std::span(states).subspan(is_full_wanted ? 0 : 1)) {
    state.record.answer_ms = ms_per_arm;
    state.record.metrics = state.metrics();
    if (!has_context) {
      record_kept(state.sequence, model_.hyper(), state.record);
    }
    record_end(state.sequence, n_tokens - 1, has_context ? n_targets_ : 0, state.record);
    done(std::move(state.record));
  }
}

}  // namespace winnow::eval
