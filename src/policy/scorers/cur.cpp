// cur: keep the rows whose keys and values are long beside those of the rows around them.
//
// Source    CurDKV: Sengupta, Chaudhary and Chakraborty, 2025, arXiv 2509.15038; as in kvpress 0.5.4
// Score     k(j) = ||key j||² / Σ of it over the window of j, v(j) likewise of values                          (1)
//           s(j) = k(j) v(j) / Σ of it over all rows                                                          (2)
//           cur_of=key, value, mean: k(j), v(j) or their mean in the place of the product                          (2')
//           Sinks have the score 1, the highest that there is.                                                 (3)
// Symbols   j = row; window = cur_window visible rows one after the other, from the first row on; the last may be shorter
// Needs     squared key norms, values
// Cost      reads each value and 4 bytes a row
// Differs   kvpress may estimate norms from 20 random directions, which reads all of a vector as well; the first 4 rows are its
//           sinks. A window that is not full has fewer rows to share, so that each of them has more: n_recent protects them

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct CurOptions {
  std::string of = "product";  // Eq. (2)
  int window = 16;             // Eq. (1)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(of, "cur_of", {"product", "key", "value", "mean"},
      "which share of its window a row is worth");
    v(window, "cur_window", 1, 1 << 20, "rows that are compared");
  }
};

// In place: each of x divided by the sum of the finite ones; what is not finite becomes NaN.
void share(std::span<float> x) {
  double sum = 0;
  for (const float each : x) {
    sum += std::isfinite(each) ? static_cast<double>(each) : 0.0;
  }
  for (float& each : x) {
    const auto part = static_cast<float>(sum > 0 ? static_cast<double>(each) / sum : 0.0);
    each = std::isfinite(each) ? part : std::numeric_limits<float>::quiet_NaN();
  }
}

class Cur final : public Scorer {
 public:
  explicit Cur(const CurOptions& options) : options_(options) {}

  Needs needs() const override { return {.values = true, .key_norms = true}; }
  bool may_be_negative() const override { return false; }

  // rows.scores [n_cached], rows.values [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(rows.scores != nullptr && std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> keys = scratch.take<float>(slots.size());
    const std::span<float> values = scratch.take<float>(slots.size());
    std::ranges::transform(slots, keys.begin(), [&](int slot) { return rows.scores[slot]; });
    kernels::squared_norms(kernels::values_of(rows), slots, values, scratch);
    const auto window = static_cast<size_t>(options_.window);
    for (size_t first = 0; first < slots.size(); first += window) {  // Eq. (1)
      const size_t n = std::min(window, slots.size() - first);
      share(keys.subspan(first, n));
      share(values.subspan(first, n));
    }
    std::ranges::transform(keys, values, keys.begin(),
                           [this](float key, float value) { return combine(key, value); });
    share(keys);  // Eq. (2)
    score_visible(slots, keys, 1.0F, scores);
    for (const int slot : slots) {  // Eq. (3)
      if (rows.positions[slot] >= layer.n_sink) {
        break;
      }
      scores[static_cast<size_t>(slot)] = 1.0F;
    }
  }

 private:
  float combine(float key, float value) const {
    if (options_.of == "key") {
      return key;
    }
    if (options_.of == "value") {
      return value;
    }
    return options_.of == "mean" ? (key + value) / 2 : key * value;
  }

  CurOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_cur(OptionReader& reader) {
  return std::make_unique<Cur>(read_options<CurOptions>(reader));
}

}  // namespace winnow::policy
