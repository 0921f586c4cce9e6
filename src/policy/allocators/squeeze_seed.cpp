// squeeze@seed: layers whose keys point in one direction keep fewer rows.
//
// Source    VeloxQuant-MLX's SqueezeAttention cache, which does not see the residual stream; an adaptation of Wang, Cui, Gan, 2024,
//           arXiv 2404.04793
// Rows      c(l) = mean over KV heads and pairs of rows i ≠ j of cos(k(i), k(j))                                       (1)
//           w(l) = (1 - clamp(c(l), 0, 1)) / its mean over the layers                                                  (2)
//           n(l) = B ((1 - strength) + strength · w(l))                                                                (3)
// Symbols   l = layer, B = budget per KV head, k = keys after rotation
// Needs     keys. All layers at once: a prompt cannot be read layer by layer
// Cost      reads each key twice, at each eviction
// Differs   there budgets are fixed after the prompt; here later cuts measure the rows that they find

#include <algorithm>
#include <numeric>

#include "kernels/row_kernels.h"
#include "policy/allocators.h"

namespace winnow::policy {
namespace {

struct SqueezeSeedOptions {
  float strength = 1;  // Eq. (3)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(strength, "strength", 0.0F, 1.0F, "how much layers differ; 0: all the same");
  }
};

class SqueezeSeed final : public LayerAllocator {
 public:
  explicit SqueezeSeed(const SqueezeSeedOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true}; }
  bool measures() const override { return true; }

  // Eq. (1): of n unit vectors with the sum u, the mean over pairs is (u · u - n) / (n (n - 1)).
  double measure(const LayerView& layer, Scratch& scratch) const override {
    double sum = 0;
    for (const cache::HeadRows& rows : layer.heads) {
      const Scratch::Frame frame(scratch);
      const std::span<const int> slots =
          cache::visible_slots(rows, scratch.take<int>(static_cast<size_t>(rows.n)));
      const std::span<float> scales = scratch.take<float>(slots.size());
      const std::span<float> total = scratch.take<float>(static_cast<size_t>(rows.head_dim));
      kernels::squared_norms(kernels::keys_of(rows), slots, scales, scratch);
      kernels::inverse_norms(scales);
      const auto n =
          static_cast<double>(std::ranges::count_if(scales, [](float scale) { return scale > 0; }));
      kernels::weighted_sum(kernels::keys_of(rows), slots, scales, total, scratch);
      const double square = std::inner_product(total.begin(), total.end(), total.begin(), 0.0);
      sum += n > 1 ? (square - n) / (n * (n - 1)) : 0;
    }
    return sum / static_cast<double>(layer.heads.size());
  }

  void allocate(const Budget& budget, std::span<const double> measured,
                std::span<double> rows) const override {
    std::ranges::fill(rows, budget.rows);
    double sum = 0;
    for (const double c : measured) {
      sum += 1 - std::clamp(c, 0.0, 1.0);
    }
    if (sum <= 0) {  // nothing is measured yet, or all keys are alike
      return;
    }
    const auto strength = static_cast<double>(options_.strength);
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      const double w = (1 - std::clamp(measured[layer], 0.0, 1.0)) *
                       static_cast<double>(rows.size()) / sum;      // Eq. (2)
      rows[layer] = budget.rows * ((1 - strength) + strength * w);  // Eq. (3)
    }
  }

 private:
  SqueezeSeedOptions options_;
};

}  // namespace

std::unique_ptr<LayerAllocator> make_squeeze_seed(OptionReader& reader) {
  return std::make_unique<SqueezeSeed>(read_options<SqueezeSeedOptions>(reader));
}

}  // namespace winnow::policy
