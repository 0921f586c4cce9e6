// capkv: keep the rows that attention is expected to go to and whose values the others cannot make up for.
//
// Source    CAPKV, 2026, arXiv 2604.25975; as in kvpress 0.5.4
// Score     μ̄ = the mean query of head h before rotation, turned by the mean of the rotations at the next n_future positions  (1)
//           c(j) = cosine of key j and μ̄                                                                        (2)
//           w(j) = exp(sharpness · (c(j) - greatest c))                                                          (3)
//           M    = I + Σ over j of (w(j) + 1e-6) v(j) v(j)ᵀ                                                      (4)
//           s(j) = mean over the query heads h of the KV head of w(j) v(j)ᵀ M⁻¹ v(j)                               (5)
//           The sinks have no part in any of this, and come before all others.                                    (6)
// Symbols   j = row, v(j) = its value
// Needs     moments of all queries but those of the first 4 positions, of which the mean is read; keys; values
// Cost      per query head n · head_dim² / 2 multiply-adds for M and as many for (5), in double, at each eviction; scratch of 4
//           head_dim bytes a row
// Differs   the paper has the product of key and query in (2), kvpress the cosine. Generated tokens' queries count too

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/gram.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct CapkvOptions {
  int n_future = 512;      // Eq. (1)
  float sharpness = 5.0F;  // Eq. (3)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(n_future, "n_future", 1, 1 << 20, "so many next positions are expected to ask");
    v(sharpness, "sharpness", 0.0F, 100.0F, "how much the direction of a key counts");
  }
};

class Capkv final : public Scorer {
 public:
  explicit Capkv(const CapkvOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .values = true, .query_moments = true}; }
  bool may_be_negative() const override { return false; }

  // rows.keys, rows.values [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const VisibleSlots visible = without_sinks(layer, kv_head, scratch);
    const size_t n = visible.others.size();
    const auto dim = static_cast<size_t>(rows.head_dim);
    const std::span<float> values = scratch.take<float>(n * dim);
    const std::span<float> lengths = scratch.take<float>(n);  // of keys, inverse
    kernels::read_rows(kernels::values_of(rows), visible.others, values, scratch);
    kernels::squared_norms(kernels::keys_of(rows), visible.others, lengths, scratch);
    kernels::inverse_norms(lengths);
    const std::span<float> worth = scratch.take_filled(n, 0.0F);
    const int group = layer.attention.gqa_group_size();
    const std::span<float> weights = scratch.take<float>(n);
    for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      weigh(layer, kv_head, head, visible.others, lengths, scratch, weights);
      add_worth(values, dim, weights, 1.0 / group, scratch, worth);
    }
    score_visible(visible.others, worth, 1.0F, scores);
    score_sinks(visible, scores);  // Eq. (6)
  }

 private:
  // Eqs. (1) to (3); NaN where a key has no cosine.
  void weigh(const LayerView& layer, int kv_head, int head, std::span<const int> slots,
             std::span<const float> lengths, Scratch& scratch, std::span<float> weights) const {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    const std::span<double> mean = scratch.take<double>(static_cast<size_t>(rows.head_dim));
    const std::span<double> turns = scratch.take<double>(layer.rotation->n_rot());
    const std::span<float> direction = scratch.take<float>(mean.size());
    layer.moments->mean(layer.layer, head, mean);
    kernels::mean_turns(*layer.rotation, layer.next_rotation, options_.n_future, turns);
    kernels::turn_strided(*layer.rotation, turns, mean.data(), 1);
    double square = 0;
    for (const double each : mean) {
      square += each * each;
    }
    const double scale = square > 0 ? 1 / std::sqrt(square) : 0.0;
    std::ranges::transform(mean, direction.begin(),
                           [&](double each) { return static_cast<float>(each * scale); });
    kernels::row_dots(kernels::keys_of(rows), slots, direction, weights, scratch);
    float greatest = -1;
    for (size_t i = 0; i < weights.size(); ++i) {
      const float cosine = weights[i] * lengths[i];
      weights[i] = std::isfinite(cosine) ? cosine : std::numeric_limits<float>::quiet_NaN();
      greatest = std::isfinite(cosine) ? std::max(greatest, cosine) : greatest;
    }
    for (float& each : weights) {
      each = static_cast<float>(
          std::exp(static_cast<double>(options_.sharpness) * static_cast<double>(each - greatest)));
    }
  }

  // Adds share · Eq. (5) of one query head; rows whose weight or value is no number have no part in M and make their own worth
  // NaN.
  static void add_worth(std::span<const float> values, size_t dim, std::span<const float> weights,
                        double share, Scratch& scratch, std::span<float> worth) {
    const Scratch::Frame frame(scratch);
    const std::span<float> x = scratch.take<float>(values.size());
    const std::span<size_t> finite = scratch.take<size_t>(weights.size());
    size_t n = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      const std::span<const float> value = values.subspan(i * dim, dim);
      const std::span<float> scaled = x.subspan(n * dim, dim);
      const float root = std::sqrt(weights[i] + 1e-6F);
      std::ranges::transform(value, scaled.begin(), [&](float each) { return each * root; });
      if (std::ranges::all_of(scaled, [](float each) { return std::isfinite(each); })) {
        finite[n++] = i;
      } else {
        worth[i] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    const std::span<const float> of_finite = x.first(n * dim);
    const std::span<double> matrix = scratch.take<double>(dim * dim);
    const std::span<double> norms = scratch.take<double>(n);
    gram_matrix(of_finite, dim, 1.0, scratch, matrix);  // Eq. (4)
    if (!factorize(matrix, dim)) {                      // values beyond what doubles can square
      std::ranges::fill(worth, std::numeric_limits<float>::quiet_NaN());
      return;
    }
    whitened_norms(matrix, dim, of_finite, scratch, norms);
    for (size_t i = 0; i < n; ++i) {
      const auto weight = static_cast<double>(weights[finite[i]]);
      worth[finite[i]] += static_cast<float>(share * norms[i] * (weight / (weight + 1e-6)));
    }
  }

  CapkvOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_capkv(OptionReader& reader) {
  return std::make_unique<Capkv>(read_options<CapkvOptions>(reader));
}

}  // namespace winnow::policy
