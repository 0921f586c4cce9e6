// squeeze: layers whose attention changes the residual stream least keep fewer rows.
//
// Source    SqueezeAttention: Wang, Cui, Gan, 2024, arXiv 2404.04793
// Rows      c(l) = mean over prompt tokens of cos(x, x + attention(x))              (1)
//           the c of all layers fall into three groups by k-means; of the group of the highest, n_3 layers,
//           n(l) = p B, and of the others n(l) = (L - n_3 p) B / (L - n_3)          (2)
// Symbols   x = the residual stream before a layer's attention, L = layers, B = budget per KV head, p = squeeze_share
// Needs     the residual stream before and after attention, of prompts. All layers at once: a prompt cannot be read layer by
//           layer
// Cost      for each prompt token and layer, reads two vectors of n_embd
// Differs   the groups are the best there are, found by trying all of them, not from a start by chance. With fewer than three
//           different c, the highest are a group where others are lower. Later prompts count, too

#include <algorithm>
#include <limits>
#include <vector>

#include "policy/allocators.h"

namespace winnow::policy {
namespace {

struct SqueezeOptions {
  float squeeze_share = 0.35F;  // p

  template <typename Visitor>
  void visit(Visitor& v) {
    v(squeeze_share, "squeeze_share", 0.01F, 1.0F,
      "what the layers that change least keep of an equal part; 1: all the same");
  }
};

// The spread of sorted[begin, end) around its mean.
double spread(const std::vector<double>& sums, const std::vector<double>& squares, size_t begin,
              size_t end) {
  const double sum = sums[end] - sums[begin];
  return squares[end] - squares[begin] - sum * sum / static_cast<double>(end - begin);
}

// The lowest value of the group of the highest.
double lowest_of_highest(std::vector<double> values) {
  std::ranges::sort(values);
  const auto n_different = [&values] {
    std::vector<double> different = values;
    different.erase(std::ranges::unique(different).begin(), different.end());
    return different.size();
  }();
  if (n_different < 3) {
    return values.back();
  }
  std::vector<double> sums(values.size() + 1);
  std::vector<double> squares(values.size() + 1);
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i] - values.front();  // small numbers keep their digits
    sums[i + 1] = sums[i] + value;
    squares[i + 1] = squares[i] + value * value;
  }
  double best = std::numeric_limits<double>::infinity();
  size_t begin_of_highest = values.size() - 1;
  for (size_t second = 1; second + 1 < values.size(); ++second) {
    for (size_t third = second + 1; third < values.size(); ++third) {
      const double cost = spread(sums, squares, 0, second) + spread(sums, squares, second, third) +
                          spread(sums, squares, third, values.size());
      if (cost < best) {
        best = cost;
        begin_of_highest = third;
      }
    }
  }
  return values[begin_of_highest];
}

class Squeeze final : public LayerAllocator {
 public:
  explicit Squeeze(const SqueezeOptions& options) : options_(options) {}

  Needs needs() const override { return {.residual_similarity = true}; }
  bool measures() const override { return true; }
  double measure(const LayerView& layer, Scratch& /*scratch*/) const override {
    return layer.similarity == nullptr ? 0 : layer.similarity->mean(layer.layer);  // Eq. (1)
  }

  void allocate(const Budget& budget, std::span<const double> measured,
                std::span<double> rows) const override {
    std::ranges::fill(rows, budget.rows);
    if (measured.empty() || std::ranges::min(measured) == std::ranges::max(measured)) {
      return;
    }
    const double lowest = lowest_of_highest({measured.begin(), measured.end()});
    const auto n_squeezed = static_cast<double>(
        std::ranges::count_if(measured, [lowest](double c) { return c >= lowest; }));
    const auto n_layers = static_cast<double>(rows.size());
    const auto share = static_cast<double>(options_.squeeze_share);
    for (size_t layer = 0; layer < rows.size(); ++layer) {  // Eq. (2)
      rows[layer] = budget.rows * (measured[layer] >= lowest
                                       ? share
                                       : (n_layers - n_squeezed * share) / (n_layers - n_squeezed));
    }
  }

 private:
  SqueezeOptions options_;
};

}  // namespace

std::unique_ptr<LayerAllocator> make_squeeze(OptionReader& reader) {
  return std::make_unique<Squeeze>(read_options<SqueezeOptions>(reader));
}

}  // namespace winnow::policy
