// simlayer: layers that look at little but the first and the last rows keep few, and the others share the rest.
//
// Source    SimLayerKV: Zhang et al., 2024, arXiv 2410.13846; as in kvpress 0.5.4
// Rows      a(j) = mean over the query heads of the layer of A_h(t, j), A = causal softmax of the last query t             (1)
//           u(l) = Σ of a over the sinks, and over the last lazy_window rows before t's own                           (2)
//           n(l) = lazy_window where u(l) > lazy_threshold; of the others, as many as there are rows left for each     (3)
// Symbols   l = layer, j = row, sinks = positions below n_sink
// Needs     the last query; keys. All layers at once: a prompt cannot be read layer by layer
// Cost      at each eviction one decode attention of each query head, without the values
// Differs   the authors' lazy layers keep the first and the last rows, which is streaming+simlayer, and the others all of theirs, so that the
//           budget is what comes of it. Here it is what is given: others have all rows where it has room for them, and then lazy
//           layers more than their window. Where all layers are lazy, or none, they are alike. kvpress' threshold of 1 turns
//           it off; 0.9 is what it advises for Llama 3

#include <algorithm>

#include "kernels/attend.h"
#include "policy/allocators.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct SimlayerOptions {
  int lazy_window = 1024;
  float lazy_threshold = 0.9F;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(lazy_window, "lazy_window", 1, 1 << 24, "rows of a layer that looks at little else");
    v(lazy_threshold, "lazy_threshold", 0.0F, 1.0F,
      "which share of its attention must go to the sinks and to these");
  }
};

class Simlayer final : public LayerAllocator {
 public:
  explicit Simlayer(const SimlayerOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = 1}; }
  bool measures() const override { return true; }

  // u(l), Eq. (2)
  double measure(const LayerView& layer, Scratch& scratch) const override {
    double sum = 0;
    for (int kv_head = 0; kv_head < std::ssize(layer.heads); ++kv_head) {
      const Scratch::Frame frame(scratch);
      const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
      const std::span<int64_t> mass = scratch.take<int64_t>(static_cast<size_t>(rows.n));
      last_query_mass(layer, kv_head, scratch, mass);
      const std::span<const int> visible =
          cache::visible_slots(rows, scratch.take<int>(mass.size()));
      const std::span<const int> before =
          seen_slots(rows, visible, layer.queries->end_pos(layer.layer) - 2);
      for (int i = 0; i < std::ssize(before); ++i) {
        const int slot = before[static_cast<size_t>(i)];
        if (rows.positions[slot] < layer.n_sink || i >= std::ssize(before) - options_.lazy_window) {
          sum += static_cast<double>(mass[static_cast<size_t>(slot)]) / kernels::kWindowMassScale;
        }
      }
    }
    return sum / layer.attention.n_heads;
  }

  void allocate(const Budget& budget, std::span<const double> measured,
                std::span<double> rows) const override {
    const auto is_lazy = [&](size_t layer) {
      return layer < measured.size() &&
             measured[layer] > static_cast<double>(options_.lazy_threshold);
    };
    size_t n_lazy = 0;
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      n_lazy += is_lazy(layer) ? 1 : 0;
    }
    std::ranges::fill(rows, budget.rows);
    if (n_lazy == 0 || n_lazy == rows.size()) {
      return;
    }
    const double of_lazy = std::min(options_.lazy_window, budget.rows);
    const double rest =
        budget.rows * static_cast<double>(rows.size()) - of_lazy * static_cast<double>(n_lazy);
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      rows[layer] = is_lazy(layer) ? of_lazy : rest / static_cast<double>(rows.size() - n_lazy);
    }
  }

 private:
  SimlayerOptions options_;
};

}  // namespace

std::unique_ptr<LayerAllocator> make_simlayer(OptionReader& reader) {
  return std::make_unique<Simlayer>(read_options<SimlayerOptions>(reader));
}

}  // namespace winnow::policy
