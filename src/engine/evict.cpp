#include "engine/evict.h"

#include <algorithm>
#include <utility>

#include "base/stopwatch.h"
#include "kernels/append.h"
#include "kernels/device_step.h"
#include "kernels/kernel_choice.h"
#include "policy/window_attention.h"

namespace winnow::engine {

void Evictor::view_layers(const Sequence& sequence, const policy::Policy& policy, int first_layer,
                          std::span<const cache::HeadRows> rows,
                          std::vector<policy::LayerView>& views) {
  const cache::CacheShape& shape = sequence.cache.shape();
  const auto n_kv_heads = static_cast<size_t>(shape.n_kv_heads);
  int n_positions =
      sequence.positions_fed;  // counts a prompt's tokens only when all layers have seen them
  for (const cache::HeadRows& head : rows) {
    n_positions = std::max(n_positions, head.n > 0 ? head.positions[head.n - 1] + 1 : 0);
  }
  int ordinal = 0;
  for (int layer = 0; layer < first_layer; ++layer) {
    ordinal += shape.swa_window(layer) == 0 ? 1 : 0;
  }
  if (shape.stores_rotations) {
    turns_.reserve(std::max(sequence.cache.rotation_end(), sequence.queries.rotation_end()));
  } else if (policy.needs().unturned_keys) {
    turns_.reserve(n_positions);
  }
  views.clear();
  for (int layer = first_layer; !rows.empty(); ++layer, rows = rows.subspan(n_kv_heads)) {
    if (shape.swa_window(layer) == 0) {
      views.push_back({.layer = layer,
                       .heads = rows.first(n_kv_heads),
                       .n_positions = n_positions,
                       .attention = attention_,
                       .queries = &sequence.queries,
                       .moments = &sequence.moments,
                       .similarity = &sequence.similarity,
                       .rotation = &turns_.rotation(),
                       .turns = &turns_,
                       .output_weights = &output_weights_,
                       .key_directions = &sequence.key_directions,
                       .ordinal = ordinal++});
    }
  }
}

policy::RowsHeld rows_held(const cache::Cache& cache) {
  const cache::CacheShape& shape = cache.shape();
  policy::RowsHeld held{.n_kv_heads = shape.n_kv_heads};
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    if (shape.swa_window(layer) > 0) {
      continue;
    }
    int64_t rows = 0;
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      const int n = cache.n_cached(layer, kv_head);
      held.longest_head = std::max<int64_t>(held.longest_head, n);
      rows += n;
    }
    ++held.n_layers;
    held.largest_layer = std::max(held.largest_layer, rows);
    held.all += rows;
  }
  return held;
}

bool is_due(const policy::Policy& policy, const cache::Cache& cache) {
  return policy::is_due(policy, policy::rows_per_head(policy, rows_held(cache)));
}

void Evictor::view(const Sequence& sequence, int first_layer, int n_layers) {
  rows_.clear();
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    for (int kv_head = 0; kv_head < sequence.cache.shape().n_kv_heads; ++kv_head) {
      rows_.push_back(sequence.cache.rows(layer, kv_head));
    }
  }
  view_layers(sequence, sequence.policy, first_layer, rows_, views_);
}

void Evictor::fetch(Sequence& sequence, int first_layer) {
  if (sequence.cache.remote() == nullptr) {
    return;
  }
  fetch_beside_rows(sequence, first_layer);
  fetch_queries(sequence);
  fetch_rows(sequence, first_layer);
}

void Evictor::fetch_beside_rows(const Sequence& sequence, int first_layer) {
  const policy::Needs needs = sequence.policy.needs();
  auto& remote = static_cast<kernels::DeviceRows&>(*sequence.cache.remote());
  n_fetched_.clear();
  for (const cache::HeadRows& rows : rows_) {
    n_fetched_.push_back(rows.n);
  }
  const auto n_most = static_cast<size_t>(std::ranges::max(n_fetched_));
  if (needs.key_norms) {
    fetched_scores_.resize(rows_.size() * n_most);
    remote.read_scores(first_layer, n_fetched_, n_most, fetched_scores_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].scores = fetched_scores_.data() + i * n_most;
    }
  }
  if (needs.column_mass) {
    fetched_mass_.resize(rows_.size() * n_most);
    remote.read_mass(first_layer, n_fetched_, n_most, fetched_mass_);
    for (size_t i = 0; i < rows_.size(); ++i) {
      rows_[i].mass = fetched_mass_.data() + i * n_most;
    }
  }
}

// The last queries or, where nothing else is asked of them and of keys, what they attend to.
void Evictor::fetch_queries(Sequence& sequence) {
  const policy::Needs needs = sequence.policy.needs();
  auto& remote = static_cast<kernels::DeviceRows&>(*sequence.cache.remote());
  window_mass_.resize(views_.size());
  windows_.resize(views_.size());
  for (size_t i = 0; needs.n_queries > 0 && i < views_.size(); ++i) {
    policy::LayerView& layer = views_[i];
    if (!needs.asks_window_only) {
      remote.read_queries(layer.layer, sequence.queries.ring(layer.layer));
      continue;
    }
    const int n_queries = policy::n_remembered(layer, needs.n_queries);
    int n_most = 0;
    for (const cache::HeadRows& rows : layer.heads) {
      n_most = std::max(n_most, rows.n);
    }
    const auto stride = static_cast<size_t>(n_most);
    window_mass_[i].resize(static_cast<size_t>(attention_.n_heads) * stride);
    remote.read_window_mass({.layer = layer.layer,
                             .first_pos = sequence.queries.end_pos(layer.layer) - n_queries,
                             .n_queries = n_queries},
                            layer.heads, stride, window_mass_[i]);
    windows_[i] = {.mass = window_mass_[i].data(), .stride = stride, .n_queries = n_queries};
    layer.window = &windows_[i];
  }
}

void Evictor::fetch_rows(const Sequence& sequence, int first_layer) {
  const policy::Needs needs = sequence.policy.needs();
  const cache::CacheShape& shape = sequence.cache.shape();
  auto& remote = static_cast<kernels::DeviceRows&>(*sequence.cache.remote());
  // A device writes no projections: they are taken of the keys here.
  const bool reads_keys = (needs.keys && !needs.asks_window_only) || needs.key_projections;
  const bool reads_values = needs.values || sequence.policy.merges();
  if (!reads_keys && !reads_values) {
    return;
  }
  const size_t row_bytes =
      (reads_keys ? shape.key_bytes() : 0) + (reads_values ? shape.value_bytes() : 0);
  size_t n_bytes = 0;
  for (const cache::HeadRows& rows : rows_) {
    n_bytes += static_cast<size_t>(rows.n) * row_bytes;
  }
  fetched_.resize(n_bytes);
  fetched_values_.assign(rows_.size(), nullptr);
  std::byte* next = fetched_.data();
  for (size_t i = 0; i < rows_.size(); ++i) {
    cache::HeadRows& rows = rows_[i];
    const int layer = first_layer + static_cast<int>(i) / shape.n_kv_heads;
    const int kv_head = static_cast<int>(i) % shape.n_kv_heads;
    std::byte* const keys = reads_keys ? next : nullptr;
    next += reads_keys ? static_cast<size_t>(rows.n) * shape.key_bytes() : 0;
    std::byte* const values = reads_values ? next : nullptr;
    next += reads_values ? static_cast<size_t>(rows.n) * shape.value_bytes() : 0;
    remote.read(layer, kv_head, rows.n, keys, values);
    rows.keys = keys;
    rows.values = values;
    fetched_values_[i] = values;
    rows.has_nonfinite_values = reads_values && remote.counts(layer, kv_head).nonfinite_values > 0;
  }
}

void Evictor::merge(Sequence& sequence, const policy::LayerView& layer, int kv_head,
                    std::span<const int> kept, std::span<const policy::Fold> folds,
                    Scratch& scratch) {
  if (sequence.cache.remote() == nullptr) {
    merge_lost_rows(sequence.policy, layer, kv_head, kept, folds, /*is_copied=*/false, scratch,
                    sequence.cache);
    return;
  }
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  std::byte* const values = fetched_values_[static_cast<size_t>(&rows - rows_.data())];
  merge_lost_rows(sequence.policy, layer, kv_head, kept, folds, /*is_copied=*/false, scratch,
                  sequence.cache, values);
  static_cast<kernels::DeviceRows&>(*sequence.cache.remote())
      .write_values(layer.layer, kv_head, rows.n, values);
}

bool chooses_on_device(const Sequence& sequence) {
  return sequence.cache.remote() != nullptr && sequence.policy.formula() != nullptr &&
         kernels::chosen_kernels() != kernels::KernelChoice::kReference;
}

// Without shares, all layers are given.
std::optional<bool> Evictor::cut_on_device(Sequence& sequence, std::span<const int64_t> shares,
                                           CutUnderWay& under_way) {
  const Stopwatch stopwatch;
  const policy::Policy& policy = sequence.policy;
  const auto has_hidden = [](const cache::HeadRows& rows) { return rows.n_hidden > 0; };
  if (!chooses_on_device(sequence) || views_.empty() || std::ranges::any_of(rows_, has_hidden)) {
    return std::nullopt;
  }
  const bool is_over = shares.empty() ? policy.count(views_, parallel_, choice_)
                                      : policy.count(views_, shares, parallel_, choice_);
  if (!is_over) {
    return false;
  }
  kernels::RowFormula formula = *policy.formula();
  const int layer = views_[0].layer;
  const int end_pos = formula.n_asked() > 0 ? sequence.queries.end_pos(layer) : 0;
  if (formula.n_asked() > 0) {
    formula.n_queries = policy::n_remembered(views_[0], formula.n_asked());
  }
  under_way.heads.clear();
  for (size_t i = 0; i < choice_.heads.size(); ++i) {
    const policy::Choice::Head& head = choice_.heads[i];
    const policy::Protected& keep_anyway = choice_.demands[i].keep_anyway;
    under_way.heads.push_back({.layer = head.layer.layer,
                               .kv_head = head.kv_head,
                               .n = head.rows().n,
                               .n_keep = choice_.n_keep[i],
                               .n_first = keep_anyway.n_first,
                               .n_last = keep_anyway.n_last});
  }
  auto& remote = static_cast<kernels::DeviceRows&>(*sequence.cache.remote());
  remote.start_cut(formula, under_way.heads, end_pos, choice_.heads[0].layer.n_positions);
  under_way.sequence = &sequence;
  sequence.evictions.ms += stopwatch.ms();
  return true;
}

void Evictor::finish(CutUnderWay& under_way) {
  Sequence* const cut = std::exchange(under_way.sequence, nullptr);
  if (cut == nullptr) {
    return;
  }
  Sequence& sequence = *cut;
  auto& remote = static_cast<kernels::DeviceRows&>(*sequence.cache.remote());
  const kernels::CutSlots slots = remote.finish_cut();
  const Stopwatch stopwatch;
  for (size_t i = 0; i < under_way.heads.size(); ++i) {
    const kernels::DeviceCut& head = under_way.heads[i];
    const int n_kept = std::min(head.n, head.n_keep);
    sequence.cache.follow(head.layer, head.kv_head,
                          {slots.slots + i * slots.stride,
                           static_cast<size_t>(slots.are_lost ? head.n - n_kept : n_kept)},
                          slots.are_lost);
  }
  sequence.evictions.nan_scores += slots.n_nan;
  sequence.evictions.ms += slots.ms + stopwatch.ms();
}

bool Evictor::carry_out(Sequence& sequence, bool is_chosen, const Stopwatch& stopwatch) {
  if (!is_chosen) {
    return false;
  }
  const int n_kv_heads = sequence.cache.shape().n_kv_heads;
  parallel_.run(static_cast<int>(choice_.kept.size()), [&](int item, int thread) {
    const policy::LayerView& layer = views_[static_cast<size_t>(item / n_kv_heads)];
    const int kv_head = item % n_kv_heads;
    const std::vector<int>& kept = choice_.kept[static_cast<size_t>(item)];
    if (sequence.policy.merges()) {
      merge(sequence, layer, kv_head, kept, choice_.folds_of(static_cast<size_t>(item)),
            scratch_[static_cast<size_t>(thread)]);
    }
    sequence.cache.keep(layer.layer, kv_head, kept);
  });
  sequence.evictions.add(choice_, stopwatch.ms());
  return true;
}

bool Evictor::evict(Sequence& sequence) {
  if (sequence.policy.is_unlimited()) {
    return false;
  }
  const Stopwatch stopwatch;
  view(sequence, 0, sequence.cache.shape().n_layers);
  if (const std::optional<bool> is_cut = cut_on_device(sequence, {}, under_way_)) {
    finish(under_way_);
    return *is_cut;
  }
  fetch(sequence, 0);
  return carry_out(sequence, sequence.policy.choose(views_, parallel_, choice_), stopwatch);
}

std::vector<int64_t> Evictor::layer_shares(const Sequence& sequence, int n_tokens) {
  const cache::CacheShape& shape = sequence.cache.shape();
  view(sequence, 0, shape.n_layers);
  std::vector<int> n_visible;
  for (const policy::LayerView& layer : views_) {
    for (const cache::HeadRows& rows : layer.heads) {
      n_visible.push_back(rows.n_visible() + n_tokens);
    }
  }
  policy::Division division;
  sequence.policy.divide(n_visible, shape.n_kv_heads, division);
  std::vector<int64_t> shares(static_cast<size_t>(shape.n_layers), INT64_MAX);
  for (size_t i = 0; i < views_.size(); ++i) {
    shares[static_cast<size_t>(views_[i].layer)] = division.rows[i];
  }
  return shares;
}

bool Evictor::start_evicting(Sequence& sequence, int layer, int64_t share, CutUnderWay& under_way) {
  if (sequence.policy.is_unlimited()) {
    return false;
  }
  const Stopwatch stopwatch;
  view(sequence, layer, 1);
  if (const std::optional<bool> is_cut = cut_on_device(sequence, {&share, 1}, under_way)) {
    return *is_cut;
  }
  fetch(sequence, layer);
  return carry_out(sequence, sequence.policy.choose(views_, {&share, 1}, parallel_, choice_),
                   stopwatch);
}

bool Evictor::evict(Sequence& sequence, int layer, int64_t share) {
  const bool is_cut = start_evicting(sequence, layer, share, under_way_);
  finish(under_way_);
  return is_cut;
}

void merge_lost_rows(const policy::Policy& policy, const policy::LayerView& layer, int kv_head,
                     std::span<const int> kept, std::span<const policy::Fold> folds, bool is_copied,
                     Scratch& scratch, cache::Cache& to, std::byte* values) {
  if (!policy.merges()) {
    return;
  }
  const Scratch::Frame frame(scratch);
  const policy::NewRows merged = policy.merge(layer, kv_head, kept, scratch, folds);
  const std::span<int> slots = scratch.take<int>(merged.rows.size());
  std::ranges::transform(merged.rows, slots.begin(),
                         [&](int row) { return is_copied ? row : kept[static_cast<size_t>(row)]; });
  if (!merged.values.empty()) {
    kernels::rewrite_values(to, layer.layer, kv_head, slots, merged.values, values);
  }
  kernels::silence_channels(to, layer.layer, kv_head, slots, merged.silent_channels);
}

void drop_unseen_rows(Sequence& sequence, int first_layer, int n_layers, int last_pos) {
  for (int layer = first_layer; layer < first_layer + n_layers; ++layer) {
    sequence.cache.drop_unseen(layer, last_pos);
  }
}

}  // namespace winnow::engine
