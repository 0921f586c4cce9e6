// Whether the queries of a head point in one direction: Observations 3.1 and 3.2 of Q-Filters (arXiv 2503.02812), on text that the
// direction was not fitted to.
#pragma once

#include "eval/on_text.h"

namespace winnow::eval {

// The direction of a query head is fitted to n_tokens queries, evenly spread over a window of as many tokens or of 2,048, which is
// read in passages of 2,048; then 2,048 tokens of the next window are held out. (Queries of a passage's first four positions are
// left out: they are unlike all others.) The axes v_m are those of the fitted queries' second moment, not centred, v_1 with the
// sign that their sum has. Medians over the query heads:
//
//   kappa             E⟨q, v_1⟩ (3.1); positive: the share of heads above 0, certain: with a 95 % interval above it, by bootstrap
//                     over blocks of 64 tokens
//   ratio             |E⟨q, v_1⟩| over the mean of |E⟨q, v_m⟩| over the other axes (3.2)
//   ratio_of_abs      E|⟨q, v_1⟩| likewise, as was published for it
//   energy            share of v_1 in E|q|²
//   ….in_sample       the same of the fitted queries, those of the first passage: positive is 1, whatever they are
//   ….noise           as held out, of normal noise instead of queries, in 64 heads: what is left of a claim there is none
//   ….noise_in_sample likewise, of the noise that was fitted to
class Anisotropy : public OnText {
 public:
  // At least two windows. is_before_rotation: of queries as they are before positions rotate them.
  Anisotropy(const model::Model& model, const ModelSettings& settings,
             std::span<const TokenText> texts, const Windows& windows, bool is_before_rotation)
      : OnText(model, settings, texts, windows), is_before_rotation_(is_before_rotation) {}

  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;

 private:
  Record measure(const SampleId& sample, const Arm& arm, const std::atomic<bool>* cancel) const;

  bool is_before_rotation_;
};

}  // namespace winnow::eval
