// snapkv@proxy: snapkv where the last keys stand in for the last queries.
//
// Source    VeloxQuant-MLX's SnapKV cache, which sees no queries; an adaptation of Li et al., NeurIPS 2024, arXiv 2404.14469
// Score     s(j) = mean over the last w rows t of softmax over all rows j of k(t) · k(j) · scale                       (1)
// Symbols   j = row, k = key after rotation, w = obs_window
// Needs     keys
// Cost      a product of each of w keys with all rows
// Differs   rows after t are asked too, nothing is pooled, and the rows that ask have no place of their own: all as there. There
//           generated tokens never make rows go, however many they are; here budgets hold

#include <cmath>
#include <vector>

#include "base/error.h"
#include "policy/key_proxy.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct SnapkvProxyOptions {
  int obs_window = 32;  // w

  template <typename Visitor>
  void visit(Visitor& v) {
    v(obs_window, "obs_window", 1, 4096, "how many of the last keys ask");
  }
};

class SnapkvProxy final : public Scorer {
 public:
  explicit SnapkvProxy(const SnapkvProxyOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true}; }
  bool may_be_negative() const override { return false; }

  // rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const size_t n_asking = std::min(static_cast<size_t>(options_.obs_window), slots.size());
    const std::span<float> weights = scratch.take<float>(slots.size());
    const std::span<float> sums = scratch.take_filled(slots.size(), 0.0F);
    for (const int asking : slots.last(n_asking)) {
      key_weights(layer, kv_head, asking, slots, scratch, weights);
      for (size_t i = 0; i < slots.size(); ++i) {
        sums[i] += std::isnan(weights[i]) ? 0.0F : weights[i];
      }
    }
    score_visible(slots, sums, 1.0F / static_cast<float>(n_asking), scores);
  }

 private:
  SnapkvProxyOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_snapkv_proxy(OptionReader& reader) {
  return std::make_unique<SnapkvProxy>(read_options<SnapkvProxyOptions>(reader));
}

}  // namespace winnow::policy
