// finch: keep the rows that the question attends to, each token of it as much as the others.
//
// Source    Corallo and Papotti, TACL 2024, a_00716; as in kvpress 0.5.4
// Score     s(j) = mean over the last w queries t, and over the query heads h of the KV head, of n(t) A_h(t, j)      (1)
//           A = causal softmax over all visible rows, n(t) = how many of them lie before t; normalize=false: 1          (2)
//           The rows of the w queries themselves come before all others.                                            (3)
// Symbols   j = row; w = obs_window, or as many queries as there were
// Needs     the last obs_window queries after rotation, keys; no values
// Cost      attention of each of the w queries of each query head by itself, without the values; n_heads · w · head_dim floats a
//           layer
// Differs   the authors' window is the question, from a mark in the prompt to its end: obs_window is its length, and the question must
//           have been read (--question aware). They turn the keys that stay to places without gaps, which is
//           positions=contiguous, and may cut a prompt in parts of which each keeps the same share: finch+chunkwise

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "policy/methods.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct FinchOptions {
  int obs_window = 64;    // w
  bool normalize = true;  // Eq. (2)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(obs_window, "obs_window", 1, 4096, "how many of the last queries are asked");
    v(normalize, "normalize", "a query's attention counts times the rows that it may choose from");
  }
};

class Finch final : public Scorer {
 public:
  explicit Finch(const FinchOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.obs_window}; }
  bool may_be_negative() const override { return false; }

  // queries [n_heads, obs_window, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const GroupHeads group{.first = 0, .n = layer.attention.gqa_group_size()};
    const int n_queries = n_remembered(layer, options_.obs_window);
    const int end_pos = layer.queries->end_pos(layer.layer);
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const std::span<int64_t> mass = scratch.take<int64_t>(scores.size());
    const std::span<double> worth = scratch.take_filled(scores.size(), 0.0);
    size_t n_before = 0;
    for (int pos = end_pos - n_queries; pos < end_pos; ++pos) {
      while (n_before < visible.size() && rows.positions[visible[n_before]] < pos) {
        ++n_before;
      }
      query_mass(layer, kv_head, group, pos, 1, scratch, mass);
      const double weight =
          (options_.normalize ? static_cast<double>(n_before) : 1.0) / n_queries / group.n;
      for (const int slot : visible) {
        const auto at = static_cast<size_t>(slot);
        worth[at] += weight * static_cast<double>(mass[at]) / kernels::kWindowMassScale;  // Eq. (1)
      }
    }
    std::ranges::fill(scores, std::numeric_limits<float>::quiet_NaN());
    for (const int slot : visible) {
      const bool is_asking = rows.positions[slot] >= end_pos - n_queries;
      scores[static_cast<size_t>(slot)] =
          is_asking ? std::numeric_limits<float>::infinity()  // Eq. (3)
                    : static_cast<float>(worth[static_cast<size_t>(slot)]);
    }
  }

 private:
  FinchOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_finch(OptionReader& reader) {
  return std::make_unique<Finch>(read_options<FinchOptions>(reader));
}

}  // namespace winnow::policy
