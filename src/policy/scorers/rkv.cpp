// rkv: keep the rows that the last queries attend to and that say what no later row says, for long reasoning.
//
// Source    R-KV: Cai et al., 2025, arXiv 2505.24133; the form of its redundancy as in the authors' code
// Score     s(j) = lambda · I(j) - (1 - lambda) · R(j)                                                                  (1)
//           I(j) = max over the `kernel` rows i around j of the mean over the last w queries t and the query heads of the KV
//           head of a(t, i), a = causal softmax over the visible rows                                                   (2)
//           R = softmax over j of the mean over all rows i of S(i, j), S(i, j) = cos(k(i), k(j)), 0 for i = j          (3)
//           and 0 for the latest ⌊retain · n⌋ of the j whose S(i, j) is above `similar`: of rows that say the same, the latest
//           are no repetition                                                                                           (4)
//           The rows of the w queries themselves come before all others.                                                (5)
// Symbols   i, j = rows, k = key after rotation, w = obs_window, n = visible rows
// Needs     keys and the last obs_window queries after rotation
// Cost      products of all keys with all, and of w queries of each query head with all
// Differs   made for decoding, where few rows are compared; of a long prompt it takes longer than attention

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"
#include "policy/row_pooling.h"
#include "policy/visible_scores.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct RkvOptions {
  float lambda = 0.1F;   // Eq. (1)
  int obs_window = 8;    // w
  int kernel = 7;        // Eq. (2)
  float similar = 0.5F;  // Eq. (4)
  float retain = 0.2F;   // Eq. (4)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(lambda, "lambda", 0.0F, 1.0F, "1: attention alone; 0: what repeats nothing, alone");
    v(obs_window, "obs_window", 1, 4096, "how many of the last queries are asked");
    v(kernel, "kernel", 1, 1023, "rows that are pooled: the row and its neighbours");
    v(similar, "similar", -1.0F, 1.0F, "keys repeat each other where their cosine is above it");
    v(retain, "retain", 0.0F, 1.0F,
      "of the rows that repeat one, the latest are exempt: so many, as a share of all rows");
  }
};

class Rkv final : public Scorer {
 public:
  explicit Rkv(const RkvOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.obs_window}; }

  // queries [n_heads, obs_window, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<float> worth = scratch.take<float>(visible.size());
    const std::span<float> importance = scratch.take<float>(visible.size());
    const std::span<float> redundancy = scratch.take<float>(visible.size());
    const int n_queries = n_remembered(layer, options_.obs_window);
    measure_importance(layer, kv_head, n_queries, visible, scratch, worth);
    pool_rows(worth, options_.kernel, /*takes_max=*/true, importance);  // Eq. (2)
    measure_redundancy(rows, visible, scratch, redundancy);
    const int window_pos = layer.queries->end_pos(layer.layer) - n_queries;
    for (size_t i = 0; i < visible.size(); ++i) {
      worth[i] =
          rows.positions[visible[i]] >= window_pos
              ? std::numeric_limits<float>::infinity()                                    // Eq. (5)
              : options_.lambda * importance[i] - (1 - options_.lambda) * redundancy[i];  // Eq. (1)
    }
    score_visible(visible, worth, 1, scores);
  }

 private:
  static void measure_importance(const LayerView& layer, int kv_head, int n_queries,
                                 std::span<const int> visible, Scratch& scratch,
                                 std::span<float> importance) {
    const Scratch::Frame frame(scratch);
    const int group = layer.attention.gqa_group_size();
    const std::span<int64_t> mass =
        scratch.take<int64_t>(static_cast<size_t>(layer.heads[static_cast<size_t>(kv_head)].n));
    window_mass(layer, kv_head, {.first = 0, .n = group}, n_queries, scratch, mass);
    const double unit = 1 / (kernels::kWindowMassScale * n_queries * group);
    std::ranges::transform(visible, importance.begin(), [&](int slot) {
      return static_cast<float>(static_cast<double>(mass[static_cast<size_t>(slot)]) * unit);
    });
  }

  // Eq. (3) and (4)
  void measure_redundancy(const cache::HeadRows& rows, std::span<const int> visible,
                          Scratch& scratch, std::span<float> redundancy) const {
    const Scratch::Frame frame(scratch);
    const size_t n = visible.size();
    const auto n_exempt =
        static_cast<size_t>(static_cast<double>(options_.retain) * static_cast<double>(n));
    const kernels::RowVectors keys = kernels::keys_of(rows);
    const std::span<float> scales = scratch.take<float>(n);
    kernels::squared_norms(keys, visible, scales, scratch);
    kernels::inverse_norms(scales);
    const std::span<float> key = scratch.take<float>(static_cast<size_t>(rows.head_dim));
    const std::span<float> cosines = scratch.take<float>(n);
    const std::span<double> sums = scratch.take_filled(n, 0.0);
    for (size_t i = 0; i < n; ++i) {
      kernels::weighted_sum(keys, visible.subspan(i, 1), scales.subspan(i, 1), key, scratch);
      kernels::row_dots(keys, visible, key, cosines, scratch);
      size_t n_similar = 0;
      for (size_t j = n; j-- > 0;) {
        const float cosine = cosines[j] * scales[j];
        const bool is_exempt = cosine > options_.similar && j != i && n_similar < n_exempt;
        n_similar += is_exempt ? 1 : 0;
        sums[j] += is_exempt || j == i || std::isnan(cosine) ? 0.0 : static_cast<double>(cosine);
      }
    }
    std::ranges::transform(sums, redundancy.begin(), [n](double sum) {
      return static_cast<float>(sum / static_cast<double>(n));
    });
    kernels::softmax(redundancy);
  }

  RkvOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_rkv(OptionReader& reader) {
  return std::make_unique<Rkv>(read_options<RkvOptions>(reader));
}

}  // namespace winnow::policy
