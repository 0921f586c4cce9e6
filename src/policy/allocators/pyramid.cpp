// pyramid: early layers keep more rows than late ones, since their attention is spread wider.
//
// Source    PyramidKV: Cai et al., 2024, arXiv 2406.02069; the line's ends as in kvpress 0.5.4
// Rows      n(l) = a - (a - z) l / (L - 1)                                          (1)
//           z = max(B / beta, n_least), a = 2 B - z                                 (2)
//           and where a > N:  a = N, z = 2 B - N                                    (3)
// Symbols   l = layer, L = how many there are, B = budget per KV head, N = rows per KV head there are
// Differs   kvpress falls back to equal layers where z is below the window; here z is raised, so that a line remains. It
//           stops at N less the window and rounds every layer for itself; here Eq. (3) stops at N, and the sum of all
//           layers is the budget exactly. A large beta gives the steepest line, from 2 B - n_least to n_least

#include <algorithm>
#include <cstddef>

#include "policy/allocators.h"

namespace winnow::policy {
namespace {

struct PyramidOptions {
  float beta = 20;  // Eq. (2)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(beta, "beta", 1.0F, 1e6F,
      "the last layer keeps the budget divided by it, and the first as much more; 1: all the same");
  }
};

class Pyramid final : public LayerAllocator {
 public:
  explicit Pyramid(const PyramidOptions& options) : options_(options) {}

  void allocate(const Budget& budget, std::span<const double> /*measured*/,
                std::span<double> rows) const override {
    const double mean = budget.rows;
    double last = std::max(mean / static_cast<double>(options_.beta),
                           static_cast<double>(budget.n_least));  // Eq. (2)
    if (2 * mean - last > budget.n_most) {
      last = 2 * mean - budget.n_most;  // Eq. (3)
    }
    const double first = 2 * mean - last;
    const auto n_steps = static_cast<double>(std::max<size_t>(rows.size(), 2) - 1);
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      rows[layer] = first - (first - last) * static_cast<double>(layer) / n_steps;  // Eq. (1)
    }
    if (rows.size() == 1) {
      rows[0] = mean;
    }
  }

 private:
  PyramidOptions options_;
};

}  // namespace

std::unique_ptr<LayerAllocator> make_pyramid(OptionReader& reader) {
  return std::make_unique<Pyramid>(read_options<PyramidOptions>(reader));
}

}  // namespace winnow::policy
