// leverage: keep the rows whose keys stand out from the others.
//
// Source    the first half of Compactor: Chari, Qin and Van Durme, 2025, arXiv 2507.08143; as in kvpress 0.5.4
// Score     s(j) = y(j) (YᵀY + εI)⁻¹ y(j)ᵀ                                                                    (1)
//           Y = X Φ / sqrt(k), X = keys before rotation, less their mean                                        (2)
// Symbols   j = row; Φ = head_dim × k random numbers of mean 0 and variance 1, k = sketch; ε = 0.01
// Needs     keys, and the rotation that is taken from them; no values, queries or attention weights
// Cost      turns each key back, k products with it and k² / 2 multiply-adds in double at each eviction; scratch of 4 (head_dim
//           + k) bytes a row
// Differs   Φ is drawn once for each layer, from `seed`: the authors draw it anew at every call. Its numbers count the set bits of a
//           hash, which is near to normal and the same everywhere. kvpress takes mean and deviation of a layer's scores out of them,
//           which changes no order; so scores here are not negative. Rows are also scored while decoding

#include <limits>

#include "base/error.h"
#include "policy/leverage.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct LeverageOptions {
  int sketch = 48;  // k, Eq. (2)
  int seed = 0;     // of Φ

  template <typename Visitor>
  void visit(Visitor& v) {
    v(sketch, "sketch", 1, 512, "random directions that keys are projected on");
    v(seed, "seed", 0, std::numeric_limits<int>::max(), "another seed draws other directions");
  }
};

class Leverage final : public Scorer {
 public:
  explicit Leverage(const LeverageOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .unturned_keys = true}; }
  bool may_be_negative() const override { return false; }

  // rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> worth = scratch.take<float>(slots.size());
    leverage_scores(layer, kv_head, {.n_directions = options_.sketch, .seed = options_.seed}, slots,
                    scratch, worth);
    score_visible(slots, worth, 1.0F, scores);  // Eq. (1)
  }

 private:
  LeverageOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_leverage(OptionReader& reader) {
  return std::make_unique<Leverage>(read_options<LeverageOptions>(reader));
}

}  // namespace winnow::policy
