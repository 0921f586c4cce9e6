// How well scores predict the attention that keys receive.
#pragma once

#include "eval/on_text.h"

namespace winnow::eval {

// A window of text is read whole, with the full cache. What a key received is the mean over all queries from its own on, and
// over the query heads of its KV head, of the softmax weight it got: S_t = mean of A_it over i >= t, from the column mass, so
// in memory that grows with the number of tokens. Each policy's scorer, without transforms, scores all keys then, and
// Spearman's correlation of the two is taken for every layer without a window and KV head. `spearman` is the median over
// them, `mean` their mean, `positive` the share above 0. `partial` is the median of
// partial correlations, without what both owe to the keys' positions: late keys are seen by near queries alone, which pay more to each.
// A score that is the same for all keys orders nothing: 0. The full cache's arm has S itself for a score: 1.
class Correlation : public OnText {
 public:
  using OnText::OnText;

  void measure(const SampleId& sample, std::span<const Arm> arms,
               const std::function<void(Record)>& done, const std::atomic<bool>* cancel) override;
};

}  // namespace winnow::eval
