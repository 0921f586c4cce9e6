// compactor: keep the rows whose keys stand out, or that their neighbours attend to.
//
// Source    Chari, Qin and Van Durme, 2025, arXiv 2507.08143; as in kvpress 0.5.4
// Score     s(j) = blend · z(a(j)) + z(b(j))                                                                    (1)
//           a(j) = leverage of row j (policy/leverage.h), b(j) = its worth to its neighbours (policy/chunk_worth.h)
//           z(x) = (x - mean) / deviation, over the rows of the head                                             (2)
//           The sinks have no part in any of this, and come before all others.                                    (3)
// Symbols   j = row
// Needs     what leverage and noncausal need
// Cost      that of both
// Differs   kvpress takes mean and deviation over all heads of a layer; here a head does not need the others. Its blend is the
//           share of rows that go, which scorers do not know here, or 0.35. It leaves the first 8 and the last 4 rows out: here the
//           first n_sink, and the last are the policy's to protect

#include <cmath>
#include <limits>

#include "base/error.h"
#include "policy/chunk_worth.h"
#include "policy/leverage.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct CompactorOptions {
  float blend = 0.35F;                           // Eq. (1)
  Sketch sketch;                                 // of leverage
  kernels::ChunkAttention chunk{.length = 256};  // of the worth to neighbours

  template <typename Visitor>
  void visit(Visitor& v) {
    v(blend, "blend", 0.0F, 100.0F, "what standing out counts beside the neighbours' attention");
    v(sketch.n_directions, "sketch", 1, 512, "random directions that keys are projected on");
    v(sketch.seed, "seed", 0, std::numeric_limits<int>::max(),
      "another seed draws other directions");
    v(chunk.length, "neighbours", 1, kernels::kMaxChunkLength,
      "positions of a chunk, whose tokens ask each other");
    v(chunk.is_scaled, "scaled",
      "products are multiplied with what attention multiplies them with");
  }
};

// Adds factor · z(x), Eq. (2), to worth; NaN has no part in mean and deviation (with n - 1). All the same: 0.
void add_normalized(std::span<const float> x, float factor, std::span<float> worth) {
  double sum = 0;
  double n = 0;
  for (const float each : x) {
    sum += std::isnan(each) ? 0.0 : static_cast<double>(each);
    n += std::isnan(each) ? 0.0 : 1.0;
  }
  const double mean = sum / n;
  double squares = 0;
  for (const float each : x) {
    const double off = static_cast<double>(each) - mean;
    squares += std::isnan(each) ? 0.0 : off * off;
  }
  const double deviation = std::sqrt(squares / (n - 1));
  const double scale = deviation > 0 ? static_cast<double>(factor) / deviation : 0.0;
  for (size_t i = 0; i < x.size(); ++i) {
    worth[i] += static_cast<float>((static_cast<double>(x[i]) - mean) * scale);
  }
}

class Compactor final : public Scorer {
 public:
  explicit Compactor(const CompactorOptions& options) : options_(options) {}

  Needs needs() const override {
    return {.keys = true,
            .values = true,
            .chunk_attention = options_.chunk,
            .n_queries = options_.chunk.length,
            .unturned_keys = true};
  }

  // rows.keys, rows.values [n_cached, head_dim], rows.scores [n_cached] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const VisibleSlots visible = without_sinks(layer, kv_head, scratch);
    const std::span<float> worth = scratch.take_filled(visible.others.size(), 0.0F);
    const std::span<float> part = scratch.take<float>(visible.others.size());
    leverage_scores(layer, kv_head, options_.sketch, visible.others, scratch, part);
    add_normalized(part, options_.blend, worth);  // Eq. (1)
    chunk_worth(layer, kv_head, options_.chunk, visible.others, scratch, part);
    add_normalized(part, 1.0F, worth);
    score_visible(visible.others, worth, 1.0F, scores);
    score_sinks(visible, scores);  // Eq. (3)
  }

 private:
  CompactorOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_compactor(OptionReader& reader) {
  return std::make_unique<Compactor>(read_options<CompactorOptions>(reader));
}

}  // namespace winnow::policy
