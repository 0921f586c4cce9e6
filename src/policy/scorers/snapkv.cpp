// snapkv: keep the rows that the last queries attend to, and their neighbours.
//
// Source    Li et al., NeurIPS 2024, arXiv 2404.14469; kvpress for one set of rows per KV head
// Score     a(h, j) = mean over the last w queries t of A_h(t, j), A = causal softmax over all visible rows   (1)
//           p(h, j) = max (or mean) of a(h, i) over the `kernel` rows i around j                               (2)
//           s(j)    = mean (or max) of p(h, j) over the query heads h of the KV head                           (3)
//           The rows of the w queries themselves come before all others.                                       (4)
// Symbols   j = row, in order of position; h = query head; w = obs_window, or as many queries as there were
// Needs     the last obs_window queries after rotation, keys; no values
// Cost      per KV head one prompt attention of its group's w queries without the values, at each eviction;
//           n_heads · w · head_dim floats a layer
// Differs   the authors keep a set of rows for each query head, here the group shares one; they sum in (1), which ranks
//           alike; their kernel is 5 or 7, kvpress has the mean of 5 with zeros beyond the ends: pool=avg,kernel=5.
//           reduce_first=true does (3) before (2), as the AdaKV authors do; force_window=false leaves (4) out and pools the
//           window's rows with the others

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"
#include "policy/methods.h"
#include "policy/window_attention.h"

namespace winnow::policy {
namespace {

struct SnapkvOptions {
  int obs_window = 64;         // w
  int kernel = 7;              // rows that are pooled, Eq. (2)
  std::string pool = "max";    // Eq. (2)
  std::string group = "mean";  // Eq. (3)
  bool reduce_first = false;   // Eq. (3) before (2)
  bool force_window = true;    // Eq. (4)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(obs_window, "obs_window", 1, 4096, "how many of the last queries are asked");
    v(kernel, "kernel", 1, 1023, "rows that are pooled: the row and its neighbours");
    v(pool, "pool", {"max", "avg"}, "what a row gets of its neighbours' attention");
    v(group, "group", {"mean", "max"}, "how the query heads of a KV head are put together");
    v(reduce_first, "reduce_first", "put the query heads together before pooling");
    v(force_window, "force_window", "the rows of the queries themselves are kept first");
  }
};

// pooled[i] = the greatest, or the mean, of x[i - (kernel-1)/2 … i + kernel/2]; beyond the ends there are zeros.
void pool_rows(std::span<const float> x, int kernel, bool takes_max, std::span<float> pooled) {
  const auto n = std::ssize(x);
  for (std::ptrdiff_t i = 0; i < n; ++i) {
    const auto first = std::max<std::ptrdiff_t>(0, i - (kernel - 1) / 2);
    const auto last = std::min<std::ptrdiff_t>(n, i + kernel / 2 + 1);
    float greatest = 0;
    double sum = 0;
    for (std::ptrdiff_t j = first; j < last; ++j) {
      greatest = std::max(greatest, x[static_cast<size_t>(j)]);
      sum += static_cast<double>(x[static_cast<size_t>(j)]);
    }
    pooled[static_cast<size_t>(i)] =
        takes_max ? greatest : static_cast<float>(sum / static_cast<double>(kernel));
  }
}

class SnapKv final : public Scorer {
 public:
  explicit SnapKv(const SnapkvOptions& options) : options_(options) {}

  Needs needs() const override { return {.keys = true, .n_queries = options_.obs_window}; }
  bool may_be_negative() const override { return false; }

  // queries [n_heads, obs_window, head_dim], rows.keys [n_cached, head_dim] -> scores [n_cached]
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override {
    const Scratch::Frame frame(scratch);
    const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
    WINNOW_CHECK(std::ssize(scores) == rows.n);
    const int n_queries = n_remembered(layer, options_.obs_window);
    const int window_pos = layer.queries->end_pos(layer.layer) - n_queries;
    const std::span<const int> visible =
        cache::visible_slots(rows, scratch.take<int>(scores.size()));
    const auto in_window = std::find_if(visible.begin(), visible.end(), [&](int slot) {
      return rows.positions[slot] >= window_pos;
    });
    const std::span<const int> slots =
        options_.force_window ? visible.first(static_cast<size_t>(in_window - visible.begin()))
                              : visible;

    const std::span<int64_t> mass = scratch.take<int64_t>(scores.size());
    const std::span<float> attention = scratch.take<float>(slots.size());
    const std::span<float> pooled = scratch.take<float>(slots.size());
    const std::span<float> worth = scratch.take_filled(slots.size(), 0.0F);
    for (int head = 0; head < layer.attention.gqa_group_size(); ++head) {
      window_mass(layer, kv_head, {.first = head, .n = 1}, n_queries, scratch, mass);
      for (size_t i = 0; i < slots.size(); ++i) {
        attention[i] = static_cast<float>(static_cast<double>(mass[static_cast<size_t>(slots[i])]) /
                                          kernels::kWindowMassScale / n_queries);  // Eq. (1)
      }
      if (!options_.reduce_first) {
        pool_rows(attention, options_.kernel, takes_max(), pooled);
      }
      add_head(options_.reduce_first ? attention : pooled, layer.attention.gqa_group_size(), worth);
    }
    if (options_.reduce_first) {
      pool_rows(worth, options_.kernel, takes_max(), pooled);
      std::copy(pooled.begin(), pooled.end(), worth.begin());
    }
    std::fill(scores.begin(), scores.end(), std::numeric_limits<float>::quiet_NaN());
    for (const int slot : visible) {
      scores[static_cast<size_t>(slot)] = std::numeric_limits<float>::infinity();  // Eq. (4)
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      scores[static_cast<size_t>(slots[i])] = worth[i];
    }
  }

 private:
  bool takes_max() const { return options_.pool == "max"; }

  // Eq. (3)
  void add_head(std::span<const float> of_head, int group_size, std::span<float> worth) const {
    for (size_t i = 0; i < worth.size(); ++i) {
      worth[i] = options_.group == "max" ? std::max(worth[i], of_head[i])
                                         : worth[i] + of_head[i] / static_cast<float>(group_size);
    }
  }

  SnapkvOptions options_;
};

}  // namespace

std::unique_ptr<Scorer> make_snapkv(OptionReader& reader) {
  return std::make_unique<SnapKv>(read_options<SnapkvOptions>(reader));
}

}  // namespace winnow::policy
