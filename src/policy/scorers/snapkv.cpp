// snapkv: keep the rows that the last queries attend to, and their neighbours.
//
// Source    Li et al., NeurIPS 2024, arXiv 2404.14469; kvpress for one set of rows per KV head
// Score     a(h, j) = mean over the last w queries t of A_h(t, j), A = causal softmax over all visible rows   (1)
//           a(h, j) · ||v(j)||^value_power / (1 + entropy_discount · H(h, j)) in its place, where that is wanted: H the entropy of the
//           A_h(t, j) over t, of sum 1                                                                         (1')
//           p(h, j) = max (or mean) of a(h, i) over the `kernel` rows i around j                               (2)
//           s(j)    = mean (or max) of p(h, j) over the query heads h of the KV head                           (3)
//           union:    s(j) = -min over h of r(h, j), where j has the r(h, j)-th best p(h, ·); rows of the same p in order of
//                     position. The n best rows are then what the heads have chosen together, each its k best for the greatest
//                     k that n has room for, and of the rows that some head has at k + 1 the first ones               (3')
//           The rows of the w queries themselves come before all others.                                       (4)
// Symbols   j = row, in order of position; h = query head; w = obs_window, or as many queries as there were
// Needs     the last obs_window queries after rotation, keys; values for value_power alone
// Cost      per KV head one prompt attention of its group's w queries without the values, at each eviction;
//           n_heads · w · head_dim floats a layer. entropy_discount asks each query by itself
// Differs   the authors keep a set of rows for each query head, here the group shares one; group=union asks what theirs is worth
//           in the same memory. They sum in (1), which ranks
//           alike; their kernel is 5 or 7, kvpress has the mean of 5 with zeros beyond the ends: pool=avg,kernel=5.
//           (1') is from unpublished code beside "Adaptive Filtering of the KV Cache", 2026. reduce_first=true does (3) before (2), as the AdaKV authors do; force_window=false leaves (4) out and pools the
//           window's rows with the others

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/methods.h"
#include "policy/order.h"
#include "policy/row_pooling.h"
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
  float value_power = 0;       // Eq. (1')
  float entropy_discount = 0;  // Eq. (1')

  template <typename Visitor>
  void visit(Visitor& v) {
    v(obs_window, "obs_window", 1, 4096, "how many of the last queries are asked");
    v(kernel, "kernel", 1, 1023, "rows that are pooled: the row and its neighbours");
    v(pool, "pool", {"max", "avg"}, "what a row gets of its neighbours' attention");
    v(group, "group", {"mean", "max", "union"},
      "how the query heads of a KV head are put together; union: each chooses rows of its own, as "
      "many as the budget has room for");
    v(reduce_first, "reduce_first", "put the query heads together before pooling");
    v(force_window, "force_window", "the rows of the queries themselves are kept first");
    v(value_power, "value_power", 0.0F, 8.0F,
      "a row's attention is multiplied with the norm of its value to this power");
    v(entropy_discount, "entropy_discount", 0.0F, 1000.0F,
      "a row's attention is divided by 1 + this times the entropy with which it comes from the "
      "queries");
  }
};

// ranks[i] = the least rank that x[i] has had, from 1 for the greatest of x; `ranks` are those so far, 0 for none.
void take_ranks(std::span<const float> x, Scratch& scratch, std::span<float> ranks) {
  const Scratch::Frame frame(scratch);
  const std::span<uint64_t> keys = scratch.take<uint64_t>(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    keys[i] = (uint64_t{~ordered(x[i])} << 32) | i;
  }
  std::ranges::sort(keys);
  for (size_t place = 0; place < keys.size(); ++place) {
    float& least = ranks[keys[place] & UINT32_MAX];
    const auto rank = static_cast<float>(place + 1);
    least = least == 0 ? rank : std::min(least, rank);
  }
}

class SnapKv final : public Scorer {
 public:
  explicit SnapKv(const SnapkvOptions& options)
      : options_(options),
        formula_{.of = kernels::RowFormula::Of::kLastQueries,
                 .n_queries = options.obs_window,
                 .pool_width = options.kernel,
                 .pools_greatest = takes_max(),
                 .takes_greatest_head = options.group == "max",
                 .pools_heads = options.reduce_first,
                 .keeps_own_rows = options.force_window} {}

  Needs needs() const override {
    // The entropy asks each query by itself.
    return {.keys = true,
            .values = options_.value_power > 0,
            .n_queries = options_.obs_window,
            .asks_window_only = options_.entropy_discount == 0};
  }
  bool may_be_negative() const override { return ranks_query_heads(); }
  bool ranks_query_heads() const override { return options_.group == "union"; }
  const kernels::RowFormula* formula() const override {
    const bool is_plain =
        !ranks_query_heads() && options_.value_power == 0 && options_.entropy_discount == 0;
    return is_plain ? &formula_ : nullptr;
  }

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

    const std::span<float> factors = value_factors(rows, slots, scratch);
    const std::span<float> attention = scratch.take<float>(slots.size());
    const std::span<float> pooled = scratch.take<float>(slots.size());
    const std::span<float> worth = scratch.take_filled(slots.size(), 0.0F);
    for (int head = 0; head < layer.attention.gqa_group_size(); ++head) {
      read_attention(layer, kv_head, head, n_queries, slots, scratch, attention);
      for (size_t i = 0; i < factors.size(); ++i) {
        attention[i] *= factors[i];  // Eq. (1')
      }
      if (!options_.reduce_first) {
        pool_rows(attention, options_.kernel, takes_max(), pooled);
      }
      if (ranks_query_heads()) {
        take_ranks(pooled, scratch, worth);
      } else {
        add_head(options_.reduce_first ? attention : pooled, layer.attention.gqa_group_size(),
                 worth);
      }
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
      scores[static_cast<size_t>(slots[i])] = ranks_query_heads() ? -worth[i] : worth[i];
    }
  }

 private:
  bool takes_max() const { return options_.pool == "max"; }

  // Of one query head of the group: Eq. (1), and with entropy_discount that part of (1').
  void read_attention(const LayerView& layer, int kv_head, int head, int n_queries,
                      std::span<const int> slots, Scratch& scratch,
                      std::span<float> attention) const {
    const Scratch::Frame frame(scratch);
    const GroupHeads one{.first = head, .n = 1};
    const std::span<int64_t> mass =
        scratch.take<int64_t>(static_cast<size_t>(layer.heads[static_cast<size_t>(kv_head)].n));
    const auto weight = [&](size_t i) {
      return static_cast<double>(mass[static_cast<size_t>(slots[i])]) / kernels::kWindowMassScale;
    };
    if (options_.entropy_discount == 0) {
      window_mass(layer, kv_head, one, n_queries, scratch, mass);
      for (size_t i = 0; i < slots.size(); ++i) {
        attention[i] = static_cast<float>(weight(i) / n_queries);
      }
      return;
    }
    const std::span<double> sums = scratch.take_filled(slots.size(), 0.0);
    const std::span<double> logs = scratch.take_filled(slots.size(), 0.0);  // of a · ln(a)
    const int end_pos = layer.queries->end_pos(layer.layer);
    for (int pos = end_pos - n_queries; pos < end_pos; ++pos) {
      query_mass(layer, kv_head, one, pos, 1, scratch, mass);
      for (size_t i = 0; i < slots.size(); ++i) {
        const double a = weight(i);
        sums[i] += a;
        logs[i] += a > 0 ? a * std::log(a) : 0;
      }
    }
    for (size_t i = 0; i < slots.size(); ++i) {
      const double entropy = sums[i] > 0 ? std::max(std::log(sums[i]) - logs[i] / sums[i], 0.0) : 0;
      const double discount = 1 + static_cast<double>(options_.entropy_discount) * entropy;
      attention[i] = static_cast<float>(sums[i] / n_queries / discount);
    }
  }

  // ||v(j)||^value_power; 0 where that is not finite. Empty where attention is taken as it is.
  std::span<float> value_factors(const cache::HeadRows& rows, std::span<const int> slots,
                                 Scratch& scratch) const {
    if (options_.value_power == 0) {
      return {};
    }
    const std::span<float> factors = scratch.take<float>(slots.size());
    kernels::squared_norms(kernels::values_of(rows), slots, factors, scratch);
    for (float& factor : factors) {
      factor = std::pow(factor, options_.value_power / 2);
      factor = std::isfinite(factor) ? factor : 0;
    }
    return factors;
  }

  // Eq. (3)
  void add_head(std::span<const float> of_head, int group_size, std::span<float> worth) const {
    for (size_t i = 0; i < worth.size(); ++i) {
      worth[i] = options_.group == "max" ? std::max(worth[i], of_head[i])
                                         : worth[i] + of_head[i] / static_cast<float>(group_size);
    }
  }

  SnapkvOptions options_;
  kernels::RowFormula formula_;
};

}  // namespace

std::unique_ptr<Scorer> make_snapkv(OptionReader& reader) {
  const auto options = read_options<SnapkvOptions>(reader);
  if (options.group == "union" && options.reduce_first) {
    reader.add_problem(
        "reduce_first=true puts the query heads together before rows are pooled, and with "
        "group=union each chooses its own");
  }
  return std::make_unique<SnapKv>(options);
}

}  // namespace winnow::policy
