// knorm: keep the rows whose keys have a low L2 norm, since those draw the most attention later.
//
// Source    Devoto, Zhao, Scardapane, Minervini, EMNLP 2024, arXiv 2406.11430
// Score     s(h, i) = -||k(h, i)||^2  for keep=low                                  (1)
//           s(h, i) = +||k(h, i)||^2  for keep=high, the paper's ablation           (2)
// Symbols   h = KV head, i = slot, ||k||^2 = HeadRows::scores
// Needs     the squared key norm written at append; no keys, values, queries or attention weights
// Cost      4 bytes a row; no scratch
// Differs   ranks by the squared norm: a square root gives neighbouring norms the same score. The paper leaves
//           the first two layers whole; here all layers are treated alike

#include <cstddef>

#include "base/error.h"
#include "policy/methods.h"

namespace winnow::policy {
namespace {

struct KnormOptions {
  std::string keep = "low";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(keep, "keep", {"low", "high"},
      "which key norms are worth most; high is the paper's ablation");
  }
};

class Knorm final : public Scorer {
 public:
  explicit Knorm(const KnormOptions& options)
      : sign_(options.keep == "low" ? -1.0F : 1.0F), formula_{.factor = sign_} {}

  Needs needs() const override { return {.key_norms = true}; }
  bool may_be_negative() const override { return sign_ < 0; }
  const kernels::RowFormula* formula() const override { return &formula_; }

  // rows.scores [n_cached] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& /*scratch*/,
             std::span<float> scores) const override {
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rows.scores != nullptr && std::ssize(scores) == rows.n);
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] = sign_ * rows.scores[i];  // Eq. (1), (2); NaN stays NaN
    }
  }

 private:
  float sign_;
  kernels::RowFormula formula_;
};

}  // namespace

std::unique_ptr<Scorer> make_knorm(OptionReader& reader) {
  return std::make_unique<Knorm>(read_options<KnormOptions>(reader));
}

}  // namespace winnow::policy
