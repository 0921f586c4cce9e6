// h2o: keep the rows that have received most attention so far, the heavy hitters.
//
// Source    Zhang et al., NeurIPS 2023, arXiv 2306.14048; kvpress (ObservedAttention) for `observed`
// Score     s(j) = mean over the query heads h of the KV head of Σ_t A_h(t, j), A = causal softmax over the visible rows,
//           t all queries fed since row j was                                                             (1)
//           observed: divided by how many these are                                                       (2)
// Symbols   j = row, t = position of a query
// Needs     column mass, added up while attention is computed; no keys or values
// Cost      8 bytes a row; attention of prompts keeps a tile's weights over all rows until their sums are known
// Differs   the authors keep a set of rows for each query head, here the group shares one. Half of their budget are the
//           latest rows: n_recent. The sums are exact: of all queries, and not of a sample or the last ones

#include "base/error.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct H2oOptions {
  bool observed = false;  // Eq. (2)
  float decay = 1.0F;     // Eq. (1): each generated token multiplies the sum so far with it

  template <typename Visitor>
  void visit(Visitor& v) {
    v(observed, "observed", "the mean over the queries that could see a row, not the sum");
    v(decay, "decay", 0.0F, 1.0F, "each generated token multiplies the sums so far with it");
  }
};

class H2o final : public Scorer {
 public:
  explicit H2o(const H2oOptions& options)
      : options_(options),
        formula_{.of = kernels::RowFormula::Of::kColumnMass, .is_per_query = options.observed} {}

  Needs needs() const override { return {.column_mass = true, .mass_decay = options_.decay}; }
  bool may_be_negative() const override { return false; }
  const kernels::RowFormula* formula() const override { return &formula_; }

  // rows.mass [n_cached] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& /*scratch*/,
             std::span<float> scores) const override {
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rows.mass != nullptr && std::ssize(scores) == rows.n);
    const double unit = 1 / (kernels::kMassScale * layer.attention.gqa_group_size());
    for (size_t slot = 0; slot < scores.size(); ++slot) {
      scores[slot] = static_cast<float>(static_cast<double>(rows.mass[slot]) * unit);  // Eq. (1)
    }
    for (size_t slot = 0; options_.observed && slot < scores.size(); ++slot) {
      scores[slot] /= static_cast<float>(layer.n_positions - rows.positions[slot]);  // Eq. (2)
    }
  }

 private:
  H2oOptions options_;
  kernels::RowFormula formula_;
};

}  // namespace

std::unique_ptr<Scorer> make_h2o(OptionReader& reader) {
  return std::make_unique<H2o>(read_options<H2oOptions>(reader));
}

}  // namespace winnow::policy
