// How long answers come apart at small budgets.
#pragma once

#include "eval/on_text.h"

namespace winnow::eval {

// A window of text is read whole, and the model goes on writing, greedily and past the end of its text, while the policy
// evicts as in generation. What each arm writes is also fed to a full cache, in the same batch: kl is the mean
// KL(full ‖ arm) of the distributions that each token was chosen from, kl_end that of the last quarter; agreement the share of
// tokens that the full cache would have chosen there. distinct_1, distinct_2 and looped are of the text (eval/scoring.h);
// score is 1 - looped.
class Drift : public OnText {
 public:
  // n_generated: tokens that each arm writes.
  Drift(const model::Model& model, const ModelSettings& settings, std::span<const TokenText> texts,
        const Windows& windows, int n_generated)
      : OnText(model, settings, texts, windows), n_generated_(n_generated) {}

  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;

 private:
  int n_generated_;
};

}  // namespace winnow::eval
