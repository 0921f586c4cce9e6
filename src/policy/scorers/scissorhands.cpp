// scissorhands: keep the rows that the last queries most often gave more than their share.
//
// Source    Liu et al., NeurIPS 2023, arXiv 2305.17118
// Score     s(j) = mean over the query heads of the KV head of the share, of those of the last w queries t that see row j, for
//           which a(t, j) >= 1 / n(t), a = causal softmax over the visible rows                                         (1)
// Symbols   j = row, n(t) = how many visible rows query t sees, w = history
// Needs     keys and the last `history` queries after rotation
// Cost      a product of each of w queries of each query head with all rows; n_heads · w · head_dim floats a layer
// Differs   the authors count the weights that were computed at the time, here the queries are asked again, about the rows that
//           there are now; and they drop half of a full buffer at a time, which is slack. A row that no query has seen has s = 0

#include <algorithm>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct ScissorhandsOptions {
  int history = 400;  // w

  template <typename Visitor>
  void visit(Visitor& v) {
    v(history, "history", 1, 4096, "how many of the last queries are asked");
  }
};

class Scissorhands final : public Scorer {
 public:
  explicit Scissorhands(const ScissorhandsOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.history}; }
  bool may_be_negative() const override { return false; }

  // queries [n_heads, history, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> weights = scratch.take<float>(visible.size());
    const std::span<float> worth = scratch.take_filled(visible.size(), 0.0F);
    const int n_queries = n_remembered(layer, options_.history);
    const int end_pos = layer.queries->end_pos(layer.layer);
    const int group = layer.attention.gqa_group_size();
    for (int pos = end_pos - n_queries; pos < end_pos; ++pos) {
      const std::span<const int> slots = seen_slots(rows, visible, pos);
      const std::span<float> seen = weights.first(slots.size());
      const float least = 1.0F / static_cast<float>(slots.size());
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        query_logits(layer, kv_head, head, pos, slots, scratch, seen);
        kernels::softmax(seen);
        for (size_t i = 0; i < seen.size(); ++i) {
          worth[i] += seen[i] >= least ? 1.0F : 0.0F;
        }
      }
    }
    for (size_t i = 0; i < worth.size(); ++i) {
      const int n_seeing = end_pos - std::max(rows.positions[visible[i]], end_pos - n_queries);
      worth[i] /= static_cast<float>(std::max(n_seeing, 1) * group);  // Eq. (1)
    }
    score_visible(visible, worth, 1, scores);
  }

 private:
  ScissorhandsOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_scissorhands(OptionReader& reader) {
  return std::make_unique<Scissorhands>(read_options<ScissorhandsOptions>(reader));
}

}  // namespace winnow::policy
