// What experiments on windows of the user's texts have in common.
#pragma once

#include "eval/experiment.h"
#include "eval/text_windows.h"

namespace winnow::eval {

class OnText : public Experiment {
 public:
  struct Windows {
    int n = 0;  // that the texts are cut into: the samples of a length
    bool allow_looped = false;
  };

  // All but the windows outlive it.
  OnText(const model::Model& model, const ModelSettings& settings, std::span<const TokenText> texts,
         const Windows& windows)
      : model_(model), settings_(settings), windows_(windows), texts_(texts) {}

 protected:
  // The sample's window of n_tokens, for sequences of n_positions. Throws invalid_argument: beyond the context, not enough
  // text, or one that repeats itself, which says little of what goes on in a model, where that is not allowed.
  TextWindow window_of(const SampleId& sample, int n_tokens, int n_positions) const;
  // Throws what engine::check_suits throws, and invalid_argument where the policy has filters that were calibrated on this text.
  void check_suits(const policy::Policy& policy, const TextWindow& window) const;
  // The record of an arm on the window, of which the first sample.n_tokens are the prompt.
  static Record record_on(const TextWindow& window, const SampleId& sample, const Arm& arm);

  const model::Model& model_;
  const ModelSettings& settings_;
  const Windows windows_;

 private:
  std::span<const TokenText> texts_;
};

}  // namespace winnow::eval
