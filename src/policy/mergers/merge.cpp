// merge: rows that go are averaged into the values of those with the most similar keys.
//
// Source    D2O: Wan et al., arXiv 2406.13035, in the form of kvpress (MergingPress)
// Values    t(e) = argmax over rows t that stay of cos(k_e, k_t)                                   (1)
//           w(e) = cos(k_e, k_t) ‖v_e‖ / (‖v_e‖ + ‖v_t‖ + 1e-6), 0 where cos < merge_threshold     (2)
//           v_t <- (v_t + Σ_e w(e) v_e) / (1 + Σ_e w(e)), over the e of t                          (3)
// Symbols   e = row that goes, t = row that stays, k and v = their key and value
// Needs     keys and values
// Cost      rows that go times rows that stay, each a dot product of keys; the values of both
// Differs   sinks take nothing (with n_sink=0, as published, there are none): what attention gives them is not meant for
//           their values. Among equally similar rows the first takes it; rows that are not finite neither give nor take

#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/row_kernels.h"
#include "kernels/select.h"
#include "policy/mergers.h"

namespace winnow::policy {
namespace {

struct MergeOptions {
  float merge_threshold = 0;  // Eq. (2)
  float merge_fraction = 1;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(merge_threshold, "merge_threshold", 0.0F, 1.0F,
      "rows that go are merged where the cosine of the keys is at least so much");
    v(merge_fraction, "merge_fraction", 0.0F, 1.0F,
      "of the rows that go, only the most similar so many are merged");
  }
};

class Merge final : public Merger {
 public:
  explicit Merge(const MergeOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .values = true}; }

  NewRows merge(const Parting& parting, Scratch& scratch) const override {
    const cache::HeadRows& rows = parting.rows();
    const auto dim = static_cast<size_t>(rows.head_dim);
    const auto n_sinks = static_cast<size_t>(std::ranges::count_if(
        parting.kept, [&](int slot) { return rows.positions[slot] < parting.layer.n_sink; }));
    const std::span<const int> takers = parting.kept.subspan(n_sinks);
    const std::span<const int> lost = parting.lost;
    const std::span<int> changed = scratch.take<int>(takers.size());
    const std::span<float> values = scratch.take<float>(takers.size() * dim);

    const Scratch::Frame frame(scratch);
    const std::span<int> taker_of = scratch.take_filled(lost.size(), kNobody);
    const std::span<float> weights = scratch.take<float>(lost.size());
    find_takers(parting, takers, scratch, taker_of, weights);
    weigh(rows, takers, lost, scratch, taker_of, weights);

    // The rows that each takes, in order, one taker's after the other's.
    const std::span<size_t> ends = scratch.take_filled(takers.size() + 1, size_t{0});
    for (const int taker : taker_of) {
      ends[static_cast<size_t>(taker + 1)] += taker == kNobody ? 0 : 1;
    }
    std::partial_sum(ends.begin(), ends.end(), ends.begin());  // where each one's begin
    const std::span<int> taken = scratch.take<int>(ends.back());
    for (size_t e = 0; e < lost.size(); ++e) {
      if (taker_of[e] != kNobody) {
        taken[ends[static_cast<size_t>(taker_of[e])]++] = static_cast<int>(e);
      }
    }
    size_t n_changed = 0;
    size_t begin = 0;
    for (size_t t = 0; t < takers.size(); ++t) {
      const std::span<const int> of_taker = taken.subspan(begin, ends[t] - begin);
      begin = ends[t];
      if (!of_taker.empty()) {
        average(rows, takers[t], lost, of_taker, weights, scratch,
                values.subspan(n_changed * dim, dim));
        changed[n_changed++] = static_cast<int>(n_sinks + t);
      }
    }
    return {.rows = changed.first(n_changed), .values = values.first(n_changed * dim)};
  }

 private:
  static constexpr int kNobody = kernels::kNoRow;

  // Eq. (1): to taker_of [lost], indices into takers, and the cosines.
  void find_takers(const Parting& parting, std::span<const int> takers, Scratch& scratch,
                   std::span<int> taker_of, std::span<float> cosines) const {
    const Scratch::Frame frame(scratch);
    const kernels::RowVectors keys = kernels::keys_of(parting.rows());
    const std::span<float> of_takers = inverse_norms(keys, takers, scratch);
    const std::span<float> of_lost = inverse_norms(keys, parting.lost, scratch);
    const std::span<kernels::Nearest> nearest = scratch.take<kernels::Nearest>(of_lost.size());
    kernels::nearest_rows(keys, parting.lost, of_lost, takers, of_takers, nearest, scratch);
    for (size_t e = 0; e < nearest.size(); ++e) {
      cosines[e] = nearest[e].cosine;
      const bool is_similar = nearest[e].cosine >= options_.merge_threshold && of_lost[e] != 0.0F;
      taker_of[e] = is_similar ? nearest[e].index : kNobody;
    }
    if (options_.merge_fraction < 1.0F) {
      leave_out_least_similar(scratch, taker_of, cosines);
    }
  }

  void leave_out_least_similar(Scratch& scratch, std::span<int> taker_of,
                               std::span<const float> cosines) const {
    const auto n_merged = static_cast<int>(std::ceil(static_cast<double>(options_.merge_fraction) *
                                                     static_cast<double>(cosines.size())));
    const std::span<int> merged =
        scratch.take<int>(static_cast<size_t>(n_merged) + kernels::kSelectSlack);
    if (n_merged > 0) {
      kernels::select_highest(cosines, n_merged, 0, merged, scratch);
    }
    size_t next = 0;
    for (size_t e = 0; e < taker_of.size(); ++e) {
      if (next < static_cast<size_t>(n_merged) && merged[next] == static_cast<int>(e)) {
        ++next;
      } else {
        taker_of[e] = kNobody;
      }
    }
  }

  // Eq. (2): cosines become weights. Who has none is nobody's.
  static void weigh(const cache::HeadRows& rows, std::span<const int> takers,
                    std::span<const int> lost, Scratch& scratch, std::span<int> taker_of,
                    std::span<float> weights) {
    const Scratch::Frame frame(scratch);
    const kernels::RowVectors values = kernels::values_of(rows);
    const std::span<float> of_takers = scratch.take<float>(takers.size());
    const std::span<float> of_lost = scratch.take<float>(lost.size());
    kernels::squared_norms(values, takers, of_takers, scratch);
    kernels::squared_norms(values, lost, of_lost, scratch);
    for (size_t e = 0; e < lost.size(); ++e) {
      if (taker_of[e] == kNobody) {
        continue;
      }
      const float own = std::sqrt(of_lost[e]);
      const float other = std::sqrt(of_takers[static_cast<size_t>(taker_of[e])]);
      weights[e] *= own / (own + other + 1e-6F);
      if (!(weights[e] > 0) || !std::isfinite(own) || !std::isfinite(other)) {
        taker_of[e] = kNobody;
      }
    }
  }

  // Eq. (3): the new value of a row, to value [head_dim].
  static void average(const cache::HeadRows& rows, int taker, std::span<const int> lost,
                      std::span<const int> taken, std::span<const float> weights, Scratch& scratch,
                      std::span<float> value) {
    const Scratch::Frame frame(scratch);
    const std::span<int> slots = scratch.take<int>(taken.size() + 1);
    const std::span<float> shares = scratch.take<float>(taken.size() + 1);
    slots[0] = taker;
    shares[0] = 1;
    float total = 1;
    for (size_t i = 0; i < taken.size(); ++i) {
      const auto e = static_cast<size_t>(taken[i]);
      slots[i + 1] = lost[e];
      shares[i + 1] = weights[e];
      total += weights[e];
    }
    kernels::weighted_sum(kernels::values_of(rows), slots, shares, value, scratch);
    for (float& element : value) {
      element /= total;
    }
  }

  static std::span<float> inverse_norms(const kernels::RowVectors& keys, std::span<const int> slots,
                                        Scratch& scratch) {
    const std::span<float> norms = scratch.take<float>(slots.size());
    kernels::squared_norms(keys, slots, norms, scratch);
    kernels::inverse_norms(norms);
    return norms;
  }

  MergeOptions options_;
};

}  // namespace

std::unique_ptr<Merger> make_merge(OptionReader& reader) {
  return std::make_unique<Merge>(read_options<MergeOptions>(reader));
}

}  // namespace winnow::policy
