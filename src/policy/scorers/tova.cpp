// tova: keep the rows that the last query attends to.
//
// Source    Oren, Hassid, Yarden, Adi, Schwartz, EMNLP 2024, arXiv 2401.06104
// Score     s(j) = mean of A_h(t, j) over the query heads h of the KV head, A = causal softmax of the last query t
//           per_layer: over all query heads of the layer, so that its KV heads keep rows at the same positions
// Symbols   j = row
// Needs     the last query after rotation, keys; no values
// Cost      per KV head one decode attention without the values, at each eviction; per_layer: n_kv_heads times that
// Differs   the authors have one set of rows for each layer, which is per_layer=true, and protect nothing: preset=paper

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "policy/methods.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct TovaOptions {
  bool per_layer = false;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(per_layer, "per_layer", "all KV heads of a layer keep the same positions");
  }
};

class Tova final : public Scorer {
 public:
  explicit Tova(const TovaOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = 1, .asks_window_only = true}; }
  bool looks_at_layer() const override { return options_.per_layer; }
  bool may_be_negative() const override { return false; }
  const kernels::RowFormula* formula() const override {
    return options_.per_layer ? nullptr : &formula_;
  }

  // queries [n_heads, 1, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<int64_t> total = scratch.take_filled(scores.size(), int64_t{0});
    const int n_kv_heads = options_.per_layer ? static_cast<int>(layer.heads.size()) : 1;
    for (int i = 0; i < n_kv_heads; ++i) {
      add_mass(layer, options_.per_layer ? i : kv_head, rows, scratch, total);
    }
    const double n_queries = static_cast<double>(n_kv_heads) * layer.attention.gqa_group_size();
    for (size_t slot = 0; slot < scores.size(); ++slot) {
      scores[slot] = static_cast<float>(static_cast<double>(total[slot]) /
                                        kernels::kWindowMassScale / n_queries);
    }
  }

 private:
  // Adds what the query heads of `kv_head` pay to its rows at the positions of `rows`, of the same or another head.
  static void add_mass(const LayerView& layer, int kv_head, const cache::HeadRows& rows,
                       Scratch& scratch, std::span<int64_t> total) {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& paid = layer.heads[static_cast<size_t>(kv_head)];
    const std::span<int64_t> mass = scratch.take<int64_t>(static_cast<size_t>(paid.n));
    last_query_mass(layer, kv_head, scratch, mass);
    size_t from = 0;
    for (size_t slot = 0; slot < total.size(); ++slot) {
      while (from < mass.size() && paid.positions[from] < rows.positions[slot]) {
        ++from;
      }
      if (from < mass.size() && paid.positions[from] == rows.positions[slot]) {
        total[slot] += mass[from];
      }
    }
  }

  TovaOptions options_;
  kernels::RowFormula formula_{.of = kernels::RowFormula::Of::kLastQuery};
};

}  // namespace

std::unique_ptr<Scorer> make_tova(OptionReader& reader) {
  return std::make_unique<Tova>(read_options<TovaOptions>(reader));
}

}  // namespace winnow::policy
