// cake: layers whose attention is spread wide, and changes from query to query, keep more rows.
//
// Source    CAKE: Qin et al., ICLR 2025, arXiv 2503.12491
// Rows      P(l) = H(l)^(1/tau1) V(l)^(1/tau2)                                      (1)
//           H(l) = -sum over heads, queries and columns of a ln(a + 1e-10)          (2)
//           V(l) = sum over heads and columns of the variance of a over the queries (3)
//           n(l) = m + (B - m) L P(l) / sum P                                       (4)
// Symbols   a = softmax weight that one of the last w queries gives a column, a row before all of them; variance with
//           w - 1; L = layers, B = budget per KV head, m = rows that a head must keep
// Needs     the last cake_window queries; keys. All layers at once: a prompt cannot be read layer by layer
// Cost      attention of cake_window queries of each query head, one by one, and a logarithm of each weight
// Differs   the authors set B once, when the prompt ends, and with it cut layer after layer; here each cut measures again.
//           Their m is the window. Without two queries, or where no weight differs, all layers are alike

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/attend.h"
#include "policy/allocators.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct CakeOptions {
  int cake_window = 32;
  float tau1 = 1;  // Eq. (1)
  float tau2 = 1;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(cake_window, "cake_window", 2, 1024, "how many of the last queries are asked");
    v(tau1, "tau1", 0.01F, 1e6F, "the higher, the less it counts how wide attention is spread");
    v(tau2, "tau2", 0.01F, 1e6F, "the higher, the less it counts how much attention changes");
  }
};

class Cake final : public LayerAllocator {
 public:
  explicit Cake(const CakeOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.cake_window}; }
  bool measures() const override { return true; }

  double measure(const LayerView& layer, Scratch& scratch) const override {
    Spread spread;
    for (int head = 0; head < layer.attention.n_heads; ++head) {
      add_head(layer, head, scratch, spread);
    }
    return std::pow(std::max(spread.entropy, 0.0), 1 / static_cast<double>(options_.tau1)) *
           std::pow(std::max(spread.variance, 0.0), 1 / static_cast<double>(options_.tau2));
  }

  void allocate(const Budget& budget, std::span<const double> measured,
                std::span<double> rows) const override {
    const auto preference = [&](size_t layer) {
      return layer < measured.size() && std::isfinite(measured[layer]) ? measured[layer] : 0;
    };
    double sum = 0;
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      sum += preference(layer);
    }
    if (!(sum > 0) || !std::isfinite(sum)) {
      std::ranges::fill(rows, budget.rows);
      return;
    }
    const double n_least = std::min(budget.n_least, budget.rows);
    const double n_shared = (budget.rows - n_least) * static_cast<double>(rows.size());
    for (size_t layer = 0; layer < rows.size(); ++layer) {
      rows[layer] = n_least + n_shared * (preference(layer) / sum);  // Eq. (4)
    }
  }

 private:
  struct Spread {
    double entropy = 0;
    double variance = 0;
  };

  // Eqs. (2) and (3), of one query head.
  void add_head(const LayerView& layer, int head, Scratch& scratch, Spread& spread) const {
    const Scratch::Frame frame(scratch);
    const int kv_head = head / layer.attention.gqa_group_size();
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    const int n_queries = n_remembered(layer, options_.cake_window);
    const int first_pos = layer.queries->end_pos(layer.layer) - n_queries;
    const auto n_columns = static_cast<size_t>(
        std::lower_bound(rows.positions, rows.positions + rows.n, first_pos) - rows.positions);
    if (n_queries < 2 || n_columns == 0) {
      return;
    }
    const std::span<int64_t> mass = scratch.take<int64_t>(static_cast<size_t>(rows.n));
    const std::span<double> sums = scratch.take_filled<double>(n_columns, 0);
    const std::span<double> squares = scratch.take_filled<double>(n_columns, 0);
    for (int pos = first_pos; pos < first_pos + n_queries; ++pos) {
      query_mass(layer, kv_head, {.first = head % layer.attention.gqa_group_size(), .n = 1}, pos, 1,
                 scratch, mass);
      for (size_t column = 0; column < n_columns; ++column) {
        const double a = static_cast<double>(mass[column]) / kernels::kWindowMassScale;
        spread.entropy -= a * std::log(a + 1e-10);
        sums[column] += a;
        squares[column] += a * a;
      }
    }
    for (size_t column = 0; column < n_columns; ++column) {
      const double of_mean = sums[column] * sums[column] / n_queries;
      spread.variance += std::max(squares[column] - of_mean, 0.0) / (n_queries - 1);
    }
  }

  CakeOptions options_;
};

}  // namespace

std::unique_ptr<LayerAllocator> make_cake(OptionReader& reader) {
  return std::make_unique<Cake>(read_options<CakeOptions>(reader));
}

}  // namespace winnow::policy
