// How likely a text is under every arm, and how far the next-token distributions are from those of the full cache.
#pragma once

#include "eval/on_text.h"

namespace winnow::eval {

// With targets: the context, n_tokens long, is read with the full cache and cut once; the text goes on, the first token
// after the context is fed and not scored, and the next n_targets are.
//
// Without: every token is decoded, and scored before, while the policy evicts as it does in generation. All arms are
// sequences of one batch.
class Ppl : public OnText {
 public:
  // n_targets: tokens that are scored after the context; 0: none is read before.
  Ppl(const model::Model& model, const ModelSettings& settings, std::span<const TokenText> texts,
      const Windows& windows, int n_targets)
      : OnText(model, settings, texts, windows), n_targets_(n_targets) {}

  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;

 private:
  int n_targets_;
};

}  // namespace winnow::eval
