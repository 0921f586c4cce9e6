// threshold: the rows whose scores are high enough stay, however many they are.
//
// Source    the threshold rule of kvpress 0.5.4 (DMSPress), around any score; KVzap, arXiv 2601.07891, uses it
// Rows      of the rows of a head's share those with s(j) > t                                        (1)
// Symbols   j = row; s = its score; t = `threshold`
// Needs     scores that mean the same in all heads and prompts, such as attention
// Cost      reads the scores once more
// Differs   sinks, recent rows and protected spans stay anyway, and the budget is an upper bound: where none is given, as
//           many rows as the document has tokens, and no recent rows. kvpress masks the others, here they go

#include <algorithm>

#include "base/error.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

struct ThresholdOptions {
  float threshold = 0.01F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(threshold, "threshold", -1e9F, 1e9F, "rows stay whose scores are above it");
  }
};

class Threshold final : public SecondStage {
 public:
  explicit Threshold(const ThresholdOptions& options) : options_(options) {}

  bool may_drop_any() const override { return true; }

  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& /*scratch*/,
              std::span<float> rescored) const override {
    const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rescored.size() == head.scores.size());
    std::ranges::copy(head.scores, rescored.begin());
    const auto [n_first, n_last] = head.keep_anyway;
    const auto compared = head.scores.subspan(
        static_cast<size_t>(n_first), head.scores.size() - static_cast<size_t>(n_first + n_last));
    const auto n_high = static_cast<int>(std::ranges::count_if(
        compared, [this](float score) { return score > options_.threshold; }));  // Eq. (1)
    return std::min(n_keep, n_first + n_high + n_last);
  }

 private:
  ThresholdOptions options_;
};

}  // namespace

std::unique_ptr<SecondStage> make_threshold(OptionReader& reader) {
  return std::make_unique<Threshold>(read_options<ThresholdOptions>(reader));
}

}  // namespace winnow::policy
