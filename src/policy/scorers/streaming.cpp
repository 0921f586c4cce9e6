// streaming: keep the latest rows; with protected sinks this is StreamingLLM.
//
// Source    Xiao, Tian, Chen, Han, Lewis, ICLR 2024, arXiv 2309.17453
// Score     s(h, i) = p(h, i) - p(h, last)                                          (1)
// Symbols   h = KV head, i = slot, p = position, last = the head's newest row
// Needs     positions; no keys, values, queries or attention weights
// Cost      4 bytes a row; no scratch
// Differs   keys keep their true positions; the authors' code renumbers the rows it kept. The score is the position
//           less a constant, since a float holds every distance up to 2^24 but not every position beyond it

#include <cstddef>

#include "base/error.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

class Streaming final : public Scorer {
 public:
  Needs needs() const override { return {}; }

  // rows.positions [n_cached] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& /*scratch*/,
             std::span<float> scores) const override {
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] = static_cast<float>(rows.positions[i] - rows.positions[rows.n - 1]);  // Eq. (1)
    }
  }
};

}  // namespace

std::unique_ptr<Scorer> make_streaming(OptionReader& /*reader*/) {
  return std::make_unique<Streaming>();
}

}  // namespace winnow::policy
