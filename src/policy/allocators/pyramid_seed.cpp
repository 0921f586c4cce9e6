// pyramid@seed: early layers keep more rows than late ones, by the line of VeloxQuant-MLX.
//
// Source    VeloxQuant-MLX's PyramidKV cache; an adaptation of Cai et al., 2024, arXiv 2406.02069
// Rows      n(l) = a - (a - z) l / (L - 1),  a = B + (B - f)(beta - 1),  z = B - (B - f)(beta - 1)                     (1)
// Symbols   l = layer, L = how many there are, B = budget per KV head, f = the rows that a head must keep and one more
// Differs   from pyramid in the ends of the line: beta is 1 for equal layers, and 2 for the steepest line, from 2 B - f to f.
//           Where beta is above 2, the sum of all layers is the budget still: what the line lacks at its end is taken from all

#include <algorithm>
#include <cstddef>

#include "policy/allocators.h"

namespace winnow::policy {
namespace {

struct PyramidSeedOptions {
  float beta = 2;  // Eq. (1)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(beta, "beta", 1.0F, 1000.0F,
      "how steep: 1: all the same; 2: the last layer keeps what it must");
  }
};

class PyramidSeed final : public LayerAllocator {
 public:
  explicit PyramidSeed(const PyramidSeedOptions& options) : options_(options) {}

  void allocate(const Budget& budget, std::span<const double> /*measured*/,
                std::span<double> rows) const override {
    const double rise = (static_cast<double>(budget.rows) - budget.n_least) *
                        (static_cast<double>(options_.beta) - 1);
    const auto n_steps = static_cast<double>(std::max<size_t>(rows.size(), 2) - 1);
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      const double level = budget.rows + rise - 2 * rise * static_cast<double>(layer) / n_steps;
      rows[layer] = rows.size() == 1 ? budget.rows : std::max(level, 0.0);  // Eq. (1)
    }
  }

 private:
  PyramidSeedOptions options_;
};

}  // namespace

std::unique_ptr<LayerAllocator> make_pyramid_seed(OptionReader& reader) {
  return std::make_unique<PyramidSeed>(read_options<PyramidSeedOptions>(reader));
}

}  // namespace winnow::policy
