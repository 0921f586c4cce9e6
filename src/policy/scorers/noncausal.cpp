// noncausal: keep the rows that their neighbours attend to, the earlier ones too.
//
// Source    the other half of Compactor: Chari, Qin and Van Durme, 2025, arXiv 2507.08143; as in kvpress 0.5.4
// Score     w(j) = ||v(j)|| · mean over h of Σ_t A_h(t, j), t and j in the same chunk                             (1)
//           A_h(t, ·) = softmax of q_h(t) · k over all rows of the chunk, whatever their position                 (2)
//           s(j) = (w(j-1) + w(j) + w(j+1)) / 3                                                                 (3)
// Symbols   j = row; h = query heads of the KV head; t = token; chunk = positions of the same quotient by `neighbours`; v, k, q =
//           value, key and query after rotation
// Needs     attention in chunks, which is computed as chunks get full, and the last `neighbours` queries for what is left; values
// Cost      while reading, for each token and query head `neighbours` products; at each eviction reads each value once;
//           n_heads · neighbours · head_dim floats a layer
// Differs   products are not multiplied with 1/√head_dim, as in kvpress; scaled=true does. Where a model's graph scales its queries
//           (Gemma), they are as attention takes them. kvpress takes mean and deviation of a
//           layer's scores out of them, which changes no order; so scores here are not negative. In a last chunk that is
//           not full only its own rows take part, where kvpress has padding take weights. Generated tokens fill chunks as
//           prompts do, among the rows that are left then

#include "base/error.h"
#include "policy/chunk_worth.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct NoncausalOptions {
  kernels::ChunkAttention chunk{.length = 256};  // Eq. (2)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(chunk.length, "neighbours", 1, kernels::kMaxChunkLength,
      "positions of a chunk, whose tokens ask each other");
    v(chunk.is_scaled, "scaled",
      "products are multiplied with what attention multiplies them with");
  }
};

class Noncausal final : public Scorer {
 public:
  explicit Noncausal(const NoncausalOptions& options) : options_(options) {}

  Needs needs() const override {
    return {.keys = true,
            .values = true,
            .chunk_attention = options_.chunk,
            .n_queries = options_.chunk.length};
  }
  bool may_be_negative() const override { return false; }

  // rows.scores [n_cached], rows.values [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> worth = scratch.take<float>(slots.size());
    chunk_worth(layer, kv_head, options_.chunk, slots, scratch, worth);  // Eq. (1) to (3)
    score_visible(slots, worth, 1.0F, scores);
  }

 private:
  NoncausalOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_noncausal(OptionReader& reader) {
  return std::make_unique<Noncausal>(read_options<NoncausalOptions>(reader));
}

}  // namespace winnow::policy
