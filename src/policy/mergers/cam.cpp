// cam: rows that go leave their values to the rows after them, at random by the attention they received.
//
// Source    CaM: Zhang et al., ICML 2024 (openreview LCTmppB165), and kvpress (CAMPress)
// Values    p(e) = min(1, A(e) / mean of A over the rows T(e))                                     (1)
//           v_t <- v_t + Σ_e b(e) v_e / |T(e)|, over the e with t in T(e); b(e) = 1 with p(e)      (2)
//           cam_to=similar: |T(e)| = 1, the row t that stays and is no sink with the most similar key, in (1), and
//           v_t <- (1 - w) v_t + w v_e, w = max(0, cos(k_e, k_t)), in order of position                   (3)
// Symbols   e = row that goes, T(e) = the first cam_rows rows after e that stay, A = column mass of the KV head's queries
// Needs     values; column mass, added up while attention is computed; cam_to=similar: keys
// Cost      the values of the rows that go, and of the rows after each; cam_to=similar: as merge
// Differs   the authors compare with the recent window that e leaves, which is where T(e) begins; what goes here need not come
//           from there. There one row goes at a time. Where several go between two that stay, as when a prompt is cut, the one
//           with the most attention is merged: so no row takes more than one row's worth in all, as there. They draw anew each
//           time, here draws hash cam_seed, layer, KV head and position. Rows that are not finite neither give nor take, and a
//           row that none stays after is dropped

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "kernels/row_kernels.h"
#include "policy/mergers.h"

namespace winnow::policy {
namespace {

struct CamOptions {
  std::string cam_to = "next";
  int cam_rows = 32;
  int cam_seed = 0;

  template <typename Visitor>
  void visit(Visitor& v) {
    v(cam_to, "cam_to", {"next", "similar"},
      "who takes a row's value: the rows after it, or the one with the most similar key");
    v(cam_rows, "cam_rows", 1, 4096, "how many of the rows after it share the value of a row");
    v(cam_seed, "cam_seed", 0, std::numeric_limits<int>::max(), "another seed merges other rows");
  }
};

class Cam final : public Merger {
 public:
  explicit Cam(const CamOptions& options) : options_(options) {}

  Needs needs() const override {
    return {.keys = gives_to_similar(), .values = true, .column_mass = true};
  }

  NewRows merge(const Parting& parting, Scratch& scratch) const override {
    if (gives_to_similar()) {
      return apply_folds(parting.rows(), parting.kept, folds(parting, scratch), scratch);
    }
    const cache::HeadRows& rows = parting.rows();
    const auto dim = static_cast<size_t>(rows.head_dim);
    const std::span<const int> kept = parting.kept;
    const std::span<int> changed = scratch.take<int>(kept.size());
    const std::span<float> values = scratch.take<float>(kept.size() * dim);

    const Scratch::Frame frame(scratch);
    // Slots of the rows that may be merged, one before each that stays, and which that is.
    const std::span<int> given = scratch.take<int>(parting.lost.size());
    const std::span<size_t> first_takers = scratch.take<size_t>(parting.lost.size());
    size_t n_given = 0;
    for (const int slot : parting.lost) {
      const auto first = static_cast<size_t>(std::ranges::upper_bound(kept, slot) - kept.begin());
      if (first == kept.size() || !is_finite(rows, slot, scratch)) {
        continue;
      }
      if (n_given == 0 || first_takers[n_given - 1] != first) {
        given[n_given] = slot;
        first_takers[n_given++] = first;
      } else if (rows.mass[slot] > rows.mass[given[n_given - 1]]) {
        given[n_given - 1] = slot;
      }
    }
    draw(parting, given, first_takers, n_given);

    const std::span<int> slots = scratch.take<int>(n_given + 1);
    const std::span<float> shares = scratch.take<float>(n_given + 1);
    size_t n_changed = 0;
    for (size_t t = 0, begin = 0, end = 0; t < kept.size() && begin < n_given; ++t) {
      while (end < n_given && first_takers[end] <= t) {
        ++end;
      }
      while (begin < end && first_takers[begin] + n_rows() <= t) {
        ++begin;
      }
      if (begin == end || !is_finite(rows, kept[t], scratch)) {
        continue;
      }
      size_t n = 0;
      slots[n] = kept[t];
      shares[n++] = 1;
      for (size_t e = begin; e < end; ++e) {
        slots[n] = given[e];
        shares[n++] = 1.0F / static_cast<float>(takers(kept, first_takers[e]).size());
      }
      kernels::weighted_sum(kernels::values_of(rows), slots.first(n), shares.first(n),
                            values.subspan(n_changed * dim, dim), scratch);  // Eq. (2)
      changed[n_changed++] = static_cast<int>(t);
    }
    return {.rows = changed.first(n_changed), .values = values.first(n_changed * dim)};
  }

 private:
  bool gives_to_similar() const { return options_.cam_to == "similar"; }

  // Eq. (3)
  std::span<const Fold> folds(const Parting& parting, Scratch& scratch) const {
    const std::span<Fold> folds = scratch.take<Fold>(parting.lost.size());
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = parting.rows();
    const kernels::RowVectors keys = kernels::keys_of(rows);
    const auto n_sinks = static_cast<size_t>(std::ranges::count_if(
        parting.kept, [&](int slot) { return rows.positions[slot] < parting.layer.n_sink; }));
    const std::span<const int> takers = parting.kept.subspan(n_sinks);
    const std::span<float> of_takers = scratch.take<float>(takers.size());
    const std::span<float> of_lost = scratch.take<float>(parting.lost.size());
    kernels::squared_norms(keys, takers, of_takers, scratch);
    kernels::squared_norms(keys, parting.lost, of_lost, scratch);
    kernels::inverse_norms(of_takers);
    kernels::inverse_norms(of_lost);
    const std::span<kernels::Nearest> nearest =
        scratch.take_filled(parting.lost.size(), kernels::Nearest{});
    kernels::nearest_rows(keys, parting.lost, of_lost, takers, of_takers, nearest, scratch);
    size_t n = 0;
    for (size_t e = 0; e < nearest.size(); ++e) {
      if (nearest[e].index == kernels::kNoRow || !(nearest[e].cosine > 0)) {
        continue;
      }
      const int taker = takers[static_cast<size_t>(nearest[e].index)];
      if (is_merged(parting, parting.lost[e], {&taker, 1})) {
        folds[n++] = {
            .from = parting.lost[e], .to = taker, .weight = std::min(nearest[e].cosine, 1.0F)};
      }
    }
    return folds.first(n);
  }

  size_t n_rows() const { return static_cast<size_t>(options_.cam_rows); }

  // T(e), of a row that kept[first] comes after.
  std::span<const int> takers(std::span<const int> kept, size_t first) const {
    return kept.subspan(first, std::min(n_rows(), kept.size() - first));
  }

  bool is_merged(const Parting& parting, int slot, std::span<const int> takers) const {
    const cache::HeadRows& rows = parting.rows();
    double sum = 0;
    for (const int taker : takers) {
      sum += static_cast<double>(rows.mass[taker]);
    }
    const double mean = sum / static_cast<double>(takers.size());
    const auto own = static_cast<double>(rows.mass[slot]);
    const double p = own >= mean ? 1 : own / mean;  // Eq. (1)
    // Not the draws of the method `random`, whose lowest go.
    uint64_t hash = splitmix64((uint64_t{1} << 32) + static_cast<uint32_t>(options_.cam_seed));
    for (const int value : {parting.layer.layer, parting.kv_head, rows.positions[slot]}) {
      hash = hash_with(hash, value);
    }
    return static_cast<double>(hash >> 40) * 0x1p-24 < p;
  }

  static bool is_finite(const cache::HeadRows& rows, int slot, Scratch& scratch) {
    float norm = 0;
    if (rows.has_nonfinite_values) {
      kernels::squared_norms(kernels::values_of(rows), {&slot, 1}, {&norm, 1}, scratch);
    }
    return std::isfinite(norm);
  }

  // Leaves those that are merged.
  void draw(const Parting& parting, std::span<int> given, std::span<size_t> first_takers,
            size_t& n_given) const {
    size_t n = 0;
    for (size_t e = 0; e < n_given; ++e) {
      if (is_merged(parting, given[e], takers(parting.kept, first_takers[e]))) {
        given[n] = given[e];
        first_takers[n++] = first_takers[e];
      }
    }
    n_given = n;
  }

  CamOptions options_;
};

}  // namespace

std::unique_ptr<Merger> make_cam(OptionReader& reader) {
  return std::make_unique<Cam>(read_options<CamOptions>(reader));
}

}  // namespace winnow::policy
