#include "eval/drift.h"

#include <algorithm>
#include <cmath>

#include "base/stopwatch.h"
#include "eval/kept.h"
#include "eval/likelihood.h"
#include "eval/scoring.h"
#include "eval/text_run.h"

namespace winnow::eval {
namespace {

using engine::Sequence;
using model::Token;

// An arm that writes, and the full cache that reads what it writes.
struct Writer {
  Record record;
  Sequence arm;
  Sequence full;
  std::vector<Token> written = {};
  double kl = 0;      // sums
  double kl_end = 0;  // of the last quarter
  int n_end = 0;
  double agreement = 0;
};

// Among equals the lower token, as the sampler takes it.
Token likeliest(std::span<const float> logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

// The first token was chosen before anything was cut, so it is not compared.
std::map<std::string, double> metrics_of(const Writer& writer, const std::string& text) {
  const double n = std::max(1.0, static_cast<double>(writer.written.size()) - 1);
  const double looped = looped_share(text);
  return {{"score", 1 - looped},
          {"looped", looped},
          {"distinct_1", distinct_n(text, 1)},
          {"distinct_2", distinct_n(text, 2)},
          {"kl", writer.kl / n},
          {"kl_end", writer.kl_end / std::max(1, writer.n_end)},
          {"agreement", writer.agreement / n}};
}

// Writers choose their next tokens, until each has n_generated.
void write(TextRun& run, std::vector<Writer>& writers, int n_generated) {
  std::vector<float> logits;
  std::vector<engine::StepInput> inputs(2 * writers.size());
  std::vector<PositionLoss> losses(writers.size());
  for (int i = 1; i < n_generated && !writers.empty(); ++i) {
    for (size_t j = 0; j < writers.size(); ++j) {
      const auto last = std::span<const Token>(writers[j].written).last(1);
      inputs[2 * j] = {.sequence = &writers[j].full, .tokens = last};
      inputs[2 * j + 1] = {.sequence = &writers[j].arm, .tokens = last};
    }
    run.step(inputs, logits);
    run.parallel().run(static_cast<int>(writers.size()), [&](int item, int /*thread*/) {
      const auto j = static_cast<size_t>(item);
      const auto arm_logits = run.row(logits, 2 * j + 1);
      losses[j] = Reference(run.row(logits, 2 * j)).compare(arm_logits, likeliest(arm_logits));
    });
    const bool is_end = 4 * i >= 3 * n_generated;
    for (size_t j = 0; j < writers.size(); ++j) {
      Writer& writer = writers[j];
      writer.written.push_back(likeliest(run.row(logits, 2 * j + 1)));
      writer.kl += losses[j].kl;
      writer.kl_end += is_end ? losses[j].kl : 0;
      writer.n_end += is_end ? 1 : 0;
      writer.agreement += losses[j].top1;
    }
  }
}

}  // namespace

void Drift::measure(const SampleId& sample, std::span<const Arm> arms,
                    const std::function<void(Record)>& done, const std::atomic<bool>* cancel) {
  TextWindow window;
  const int n_positions = sample.n_tokens + n_generated_;
  try {
    window = window_of(sample, sample.n_tokens, n_positions);
  } catch (const Error& error) {
    refuse(sample, arms, error, done);
    return;
  }
  TextRun run(model_, settings_, n_positions, needs_of(arms), cancel,
              replay_room(model_, settings_, arms, sample.n_tokens));
  const Stopwatch prefill;
  const Token first = likeliest(run.read(window.tokens));
  const double prefill_ms = prefill.ms();
  std::vector<Writer> writers;
  for (const Arm& arm : arms) {
    try {
      check_suits(arm.policy, window);
      writers.push_back({.record = record_on(window, sample, arm),
                         .arm = run.arm(arm, sample.n_tokens),
                         .full = run.arm({.policy = policy::Policy::full()}, sample.n_tokens),
                         .written = {first}});
    } catch (const Error& error) {
      refuse(sample, {&arm, 1}, error, done);
    }
  }
  const Stopwatch writing;
  write(run, writers, n_generated_);
  const double ms_per_arm = writing.ms() / static_cast<double>(writers.size());
  for (Writer& writer : writers) {
    Record& record = writer.record;
    std::string text;
    for (const Token token : writer.written) {
      text += model_.vocabulary().piece(token);
    }
    record.n_generated = static_cast<int>(writer.written.size());
    record.metrics = metrics_of(writer, text);
    record.answers = {std::move(text)};
    record.prefill_ms = prefill_ms;
    record.answer_ms = ms_per_arm;
    record_kept(writer.arm, model_.hyper(), record);
    record_end(writer.arm, n_positions - 1, 0, record);
    done(std::move(record));
  }
}

}  // namespace winnow::eval
