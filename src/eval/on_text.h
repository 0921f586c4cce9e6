// What experiments on windows of the user's texts have in common.
#pragma once

#include "eval/experiment.h"
#include "eval/text_windows.h"

namespace winnow::eval {

class OnText : public Experiment {
 public:
  // The samples of a length are n_windows windows of the texts. All but the number outlive it.
  OnText(const model::Model& model, const ModelSettings& settings, std::span<const TokenText> texts,
         int n_windows)
      : model_(model), settings_(settings), texts_(texts), n_windows_(n_windows) {}

  // Nobody asks anything.
  std::vector<QuestionMode> modes(std::span<const QuestionMode> /*wanted*/) const override {
    return {QuestionMode::kNone};
  }

 protected:
  // Where arms may also be cut in legacy order.
  static std::vector<QuestionMode> modes_with_legacy_order(std::span<const QuestionMode> wanted);
  // The sample's window of n_tokens, for sequences of n_positions. Throws invalid_argument: beyond the context, not enough
  // text.
  TextWindow window_of(const SampleId& sample, int n_tokens, int n_positions) const;
  // Whether a text repeats itself, which says little of what goes on in a model. Throws invalid_argument where that is not
  // allowed.
  static bool check_looped(const TextWindow& window, bool is_allowed);
  // Throws invalid_argument where the policy has filters of another model, or ones that were calibrated on this text.
  void check_filters(const policy::Policy& policy, const TextWindow& window) const;
  // The record of an arm on the window, of which the first sample.n_tokens are the prompt.
  static Record record_on(const TextWindow& window, const SampleId& sample, const Arm& arm);

  const model::Model& model_;
  const ModelSettings& settings_;

 private:
  std::span<const TokenText> texts_;
  int n_windows_;
};

}  // namespace winnow::eval
