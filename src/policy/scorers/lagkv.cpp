// lagkv: keep the rows whose channels spread most, measured by the range that the rows after them span.
//
// Source    Liang, Zhang, Li, Li, 2025, arXiv 2504.04704; kvpress for ranks, sinks, tail and short inputs
// Score     The visible rows behind the sinks are cut into partitions P_0 … P_m-1 of `lag` rows and a rest.
//           x'(i, c) = (x(i, c) - low(c)) / (high(c) - low(c)), low and high over P_p+1, i in P_p      (1)
//           z_X(i)   = softmax over i in P_p of the standard deviation of x'(i, c) over the channels c (2)
//           z(i)     = (z_K(i) + z_V(i)) / 2                                                          (3)
//           s(i)     = rank of z(i) in P_p, from 0, divided by lag; with cross_scoring, z(i) itself      (4)
//           Sinks, P_m-1 and the rest score 1. With m < 2, row i of n behind S sinks scores (i - S) / (n - S). (5)
// Symbols   x = key (X = K, after rotation) or value (X = V) of one KV head, i = index among its visible rows
// Needs     keys, values, positions, the policy's n_sink; no queries or attention weights
// Cost      reads each visible key and value twice; scratch of 12 bytes a row
// Differs   the authors compress each partition once, when the next is full, and leave it alone afterwards; here every
//           eviction cuts all that is cached then into partitions anew. A channel that is constant over P_p+1 counts
//           as 0, where the published code divides by zero. Of equal z the lower position ranks higher. kvpress calls
//           the lag lag_size

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

struct LagkvOptions {
  int lag = 128;               // rows of a partition
  bool cross_scoring = false;  // Eq. (4)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(lag, "lag", 2, 1 << 20, "rows of a partition; the next partition is its yardstick");
    v(cross_scoring, "cross_scoring",
      "compare rows of all partitions by their scores, not by ranks in their own");
  }
};

// Below this the range of a channel counts as none.
constexpr float kLeastRange = 1e-12F;

// One kind of vector's share in Eq. (3): z [partition] of the rows in `partition`, measured by those in `next`.
void spread(const kernels::RowVectors& rows, std::span<const int> partition,
            std::span<const int> next, Scratch& scratch, std::span<float> z) {
  const Scratch::Frame frame(scratch);
  const std::span<float> low = scratch.take<float>(static_cast<size_t>(rows.head_dim));
  const std::span<float> scale = scratch.take<float>(low.size());
  kernels::channel_bounds(rows, next, low, scale, scratch);
  for (size_t c = 0; c < low.size(); ++c) {
    const float range = scale[c] - low[c];
    scale[c] = range > kLeastRange ? 1.0F / range : 0.0F;
  }
  kernels::channel_deviations(rows, partition, low, scale, z, scratch);  // Eq. (1)
  kernels::softmax(z);                                                   // Eq. (2)
}

// counts[i] = how many of z come before z[i], the greatest first and of equal ones the first; NaN is replaced by -1.
void count_better(std::span<float> z, Scratch& scratch, std::span<int32_t> counts) {
  constexpr size_t kMostCompared = 512;  // sorting is slower up to here
  for (float& each : z) {
    each = std::isnan(each) ? -1.0F : each;
  }
  if (z.size() <= kMostCompared) {
    kernels::count_better(z, counts);
    return;
  }
  const Scratch::Frame frame(scratch);
  const std::span<int> best_first = scratch.take<int>(z.size());
  std::iota(best_first.begin(), best_first.end(), 0);
  std::ranges::sort(best_first, [&](int a, int b) {
    const float of_a = z[static_cast<size_t>(a)];
    const float of_b = z[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  for (size_t i = 0; i < z.size(); ++i) {
    counts[static_cast<size_t>(best_first[i])] = static_cast<int32_t>(i);
  }
}

// Replaces the scores of a partition by their ranks from 0 to below 1, NaN lowest.
void rank(std::span<float> z, Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const std::span<int32_t> counts = scratch.take<int32_t>(z.size());
  count_better(z, scratch, counts);
  const auto n = static_cast<float>(z.size());
  for (size_t i = 0; i < z.size(); ++i) {
    z[i] = static_cast<float>(static_cast<int32_t>(z.size()) - 1 - counts[i]) / n;
  }
}

class LagKv final : public Scorer {
 public:
  explicit LagKv(const LagkvOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .values = true}; }
  bool may_be_negative() const override { return false; }

  // rows.keys, rows.values [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const auto first = std::find_if(slots.begin(), slots.end(),
                                    [&](int slot) { return rows.positions[slot] >= layer.n_sink; });
    const auto n_sinks = static_cast<size_t>(first - slots.begin());
    const std::span<const int> others = slots.subspan(n_sinks);

    const std::span<float> worth = scratch.take_filled(slots.size(), 1.0F);
    score_partitions(rows, others, scratch, worth.subspan(n_sinks));
    score_visible(slots, worth, 1, scores);
  }

 private:
  // The scores of the rows behind the sinks: worth [slots], 1 before.
  void score_partitions(const cache::HeadRows& rows, std::span<const int> slots, Scratch& scratch,
                        std::span<float> worth) const {
    const auto lag = static_cast<size_t>(options_.lag);
    const size_t n_partitions = slots.size() / lag;
    if (n_partitions < 2) {
      for (size_t i = 0; i < worth.size(); ++i) {
        worth[i] = static_cast<float>(i) / static_cast<float>(worth.size());  // Eq. (5)
      }
      return;
    }
    const std::span<float> of_values = scratch.take<float>(lag);
    for (size_t p = 0; p + 1 < n_partitions; ++p) {
      const std::span<const int> partition = slots.subspan(p * lag, lag);
      const std::span<const int> next = slots.subspan((p + 1) * lag, lag);
      const std::span<float> z = worth.subspan(p * lag, lag);
      spread(kernels::keys_of(rows), partition, next, scratch, z);
      spread(kernels::values_of(rows), partition, next, scratch, of_values);
      for (size_t i = 0; i < lag; ++i) {
        z[i] = (z[i] + of_values[i]) / 2;  // Eq. (3)
      }
      if (!options_.cross_scoring) {
        rank(z, scratch);  // Eq. (4)
      }
    }
  }

  LagkvOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_lagkv(OptionReader& reader) {
  return std::make_unique<LagKv>(read_options<LagkvOptions>(reader));
}

}  // namespace winnow::policy
