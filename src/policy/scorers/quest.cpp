// quest: keep whole pages of rows whose keys may reach farthest along the last queries.
//
// Source    Tang et al., ICML 2024, arXiv 2406.10774, for the bound; "Adaptive Filtering of the KV Cache", 2026, for asking once,
//           with the mean of the last queries
// Score     u(h, P) = Σ_c max(q(h, c) · low(P, c), q(h, c) · high(P, c)), which no key of page P exceeds    (1)
//           q(h)    = mean of the last w queries of head h                                               (2)
//           s(j)    = mean of u(h, P) over the query heads h of the KV head, P the page of row j             (3)
// Symbols   j = row; h = query head; c = channel; low, high = bounds of the keys of a page: rows whose positions have the
//           same quotient by `page`; w = obs_window, or as many queries as there were
// Needs     the last obs_window queries after rotation, keys; no values
// Cost      reads each key once at each eviction; n_heads · w · head_dim floats a layer
// Differs   the authors keep all rows, choose pages anew for every token and query head, and leave the first two layers
//           whole; here pages that lose are gone, and a page may be cut to fill a budget to the row

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct QuestOptions {
  int obs_window = 64;  // w, Eq. (2)
  int page = 16;        // positions of a page

  template <typename Visitor>
  void visit(Visitor& v) {
    v(obs_window, "obs_window", 1, 4096, "how many of the last queries are averaged");
    v(page, "page", 1, 4096, "positions of a page");
  }
};

class Quest final : public Scorer {
 public:
  explicit Quest(const QuestOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.obs_window}; }

  // queries [n_heads, obs_window, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const auto head_dim = static_cast<size_t>(rows.head_dim);
    const std::span<double> queries = mean_queries(layer, kv_head, scratch);
    const std::span<float> low = scratch.take<float>(head_dim);
    const std::span<float> high = scratch.take<float>(head_dim);
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(scores.size()));
    std::fill(scores.begin(), scores.end(), std::numeric_limits<float>::quiet_NaN());
    for (size_t begin = 0; begin < visible.size();) {
      const int page = rows.positions[visible[begin]] / options_.page;
      size_t end = begin + 1;
      while (end < visible.size() && rows.positions[visible[end]] / options_.page == page) {
        ++end;
      }
      const std::span<const int> slots = visible.subspan(begin, end - begin);
      kernels::channel_bounds(kernels::keys_of(rows), slots, low, high, scratch);
      double bound = 0;
      for (size_t i = 0; i < queries.size(); ++i) {
        const float reached = queries[i] < 0 ? low[i % head_dim] : high[i % head_dim];
        bound += queries[i] * static_cast<double>(reached);  // Eq. (1)
      }
      for (const int slot : slots) {
        scores[static_cast<size_t>(slot)] =
            static_cast<float>(bound / layer.attention.gqa_group_size());  // Eq. (3)
      }
      begin = end;
    }
  }

 private:
  // [group, head_dim], Eq. (2)
  std::span<double> mean_queries(const LayerView& layer, int kv_head, Scratch& scratch) const {
    const int group_size = layer.attention.gqa_group_size();
    const int n_queries = n_remembered(layer, options_.obs_window);
    const int end_pos = layer.queries->end_pos(layer.layer);
    const auto n = static_cast<size_t>(group_size) *
                   static_cast<size_t>(layer.heads[static_cast<size_t>(kv_head)].head_dim);
    const std::span<double> mean = scratch.take_filled(n, 0.0);
    const Scratch::Frame frame(scratch);
    const std::span<float> query = scratch.take<float>(n);
    for (int pos = end_pos - n_queries; pos < end_pos; ++pos) {
      std::copy_n(layer.queries->query(layer.layer, kv_head * group_size, pos), n, query.data());
      turn_to_rows(layer, kv_head, pos, scratch, query);
      for (size_t i = 0; i < n; ++i) {
        mean[i] += static_cast<double>(query[i]) / n_queries;
      }
    }
    return mean;
  }

  QuestOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_quest(OptionReader& reader) {
  return std::make_unique<Quest>(read_options<QuestOptions>(reader));
}

}  // namespace winnow::policy
