// How likely a text is under every arm, and how far the next-token distributions are from those of the full cache.
#pragma once

#include "eval/on_text.h"

namespace winnow::eval {

struct PplOptions {
  int n_windows = 0;  // that the texts are cut into: the samples of a length
  int n_targets = 0;  // tokens that are scored after the context; 0: see below
  bool allow_looped = false;
};

// With targets: the context, n_tokens long, is read with the full cache and cut once; the text goes on, the first token
// after the context is fed and not scored, and the next n_targets are.
//
// Without: every token is decoded, and scored before, while the policy evicts as it does in generation. All arms are
// sequences of one batch.
class Ppl : public OnText {
 public:
  // All but the options outlive it.
  Ppl(const model::Model& model, const ModelSettings& settings, std::span<const TokenText> texts,
      const PplOptions& options)
      : OnText(model, settings, texts, options.n_windows), options_(options) {}

  std::vector<QuestionMode> modes(std::span<const QuestionMode> wanted) const override {
    return modes_with_legacy_order(wanted);
  }
  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;

 private:
  PplOptions options_;
};

}  // namespace winnow::eval
