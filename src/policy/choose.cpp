// Score, transform, allocate, protect, select: what a policy keeps of the rows there are, and what becomes of the others.

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/parallel.h"
#include "policy/order.h"
#include "policy/policy.h"
#include "policy/protect.h"
#include "policy/select.h"

namespace winnow::policy {
namespace {

template <class Rows>
int64_t sum(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

// Turns the keys of a head to their places, where positions are contiguous and rows have gone: a copy in floats, whose
// rotations say so.
void turn_to_places(const kernels::TurnTable* turns, Scratch& scratch, cache::HeadRows& rows) {
  if (rows.rotations == nullptr || rows.n == 0) {
    return;
  }
  const auto n = static_cast<size_t>(rows.n);
  const std::span<int32_t> lags = scratch.take<int32_t>(n);
  if (!kernels::contiguous_lags(rows, kernels::contiguous_end(rows), lags)) {
    return;
  }
  const std::span<float> keys = scratch.take<float>(n * static_cast<size_t>(rows.head_dim));
  const std::span<int32_t> rotations = scratch.take<int32_t>(n);
  kernels::turned_keys(rows, {.table = turns, .lags = lags.data()}, scratch, keys);
  for (size_t slot = 0; slot < n; ++slot) {
    rotations[slot] = rows.rotations[slot] - lags[slot];
  }
  rows.keys = reinterpret_cast<const std::byte*>(keys.data());
  rows.key_type = cache::RowType::kF32;
  rows.rotations = rotations.data();
}

// The layer with the keys of some of its heads at their places.
LayerView with_keys_at_places(LayerView layer, int first_head, int n_heads, Scratch& scratch) {
  const std::span<cache::HeadRows> heads = scratch.take<cache::HeadRows>(layer.heads.size());
  std::ranges::copy(layer.heads, heads.begin());
  for (int head = first_head; head < first_head + n_heads; ++head) {
    turn_to_places(layer.turns, scratch, heads[static_cast<size_t>(head)]);
  }
  layer.heads = heads;
  return layer;
}

// The head's layer as attention will see it.
LayerView contiguous_view(const Choice::Head& head, const Scorer& scorer, Scratch& scratch) {
  LayerView view = head.layer;
  view.next_rotation = view.n_positions;
  if (head.rows().rotations == nullptr || head.rows().n == 0) {
    return view;
  }
  view.next_rotation = kernels::contiguous_end(head.rows());
  if (!scorer.needs().keys && !scorer.needs().key_projections) {
    return view;
  }
  return scorer.looks_at_layer()
             ? with_keys_at_places(view, 0, static_cast<int>(view.heads.size()), scratch)
             : with_keys_at_places(view, head.kv_head, 1, scratch);
}

// Scores of the rows to choose among: the visible ones, without those that spans hold. Where that is not all of them,
// also the slots they are in.
void score_candidates(const Scorer& scorer, const Choice::Head& head, const HeadDemand& demand,
                      const Protection& protection, Scratch& scratch, Choice::Scored& scored) {
  const cache::HeadRows& rows = head.rows();
  const auto n = static_cast<size_t>(rows.n);
  scored.scores.resize(n);
  const Scratch::Frame frame(scratch);
  scorer.score(contiguous_view(head, scorer, scratch), head.kv_head, scratch, scored.scores);
  scored.slots.clear();
  scored.held_slots.clear();
  if (demand.n == rows.n) {
    return;
  }
  scored.slots.resize(n);
  const std::span<const int> visible = cache::visible_slots(rows, scored.slots);
  find_held(rows, protection, visible, scored.scores, scratch, scored.held_slots);
  auto held = scored.held_slots.begin();
  size_t n_candidates = 0;
  for (const int slot : visible) {
    if (held != scored.held_slots.end() && *held == slot) {
      ++held;
    } else {
      scored.scores[n_candidates] = scored.scores[static_cast<size_t>(slot)];
      scored.slots[n_candidates] = slot;
      ++n_candidates;
    }
  }
  scored.scores.resize(n_candidates);
  scored.slots.resize(n_candidates);
}

// Adds `more` to `kept`, both ascending.
void merge_slots(std::span<const int> more, std::vector<int>& kept) {
  size_t to = kept.size() + more.size();
  size_t from = kept.size();
  size_t n_more = more.size();
  kept.resize(to);
  while (n_more > 0) {
    const bool takes_more = from == 0 || more[n_more - 1] > kept[from - 1];
    kept[--to] = takes_more ? more[--n_more] : kept[--from];
  }
}

int count_nan(std::span<const float> scores, const Protected& keep_anyway) {
  const auto first = static_cast<size_t>(keep_anyway.n_first);
  const auto last = static_cast<size_t>(keep_anyway.n_last);
  const std::span<const float> compared = scores.subspan(first, scores.size() - first - last);
  return static_cast<int>(
      std::ranges::count_if(compared, [](float score) { return std::isnan(score); }));
}

// How many rows each query head has chosen where n_keep stay, by scores that Scorer::ranks_query_heads() speaks of.
int query_head_rows(std::span<const float> scores, const Protected& keep_anyway, int n_keep,
                    Scratch& scratch) {
  const int n_chosen = n_keep - keep_anyway.n_first - keep_anyway.n_last;
  const auto first = static_cast<size_t>(keep_anyway.n_first);
  const size_t n = scores.size() - first - static_cast<size_t>(keep_anyway.n_last);
  if (n_chosen <= 0 || n == 0) {
    return 0;
  }
  const Scratch::Frame frame(scratch);
  const std::span<float> compared = scratch.take<float>(n);
  std::ranges::copy(scores.subspan(first, n), compared.begin());
  const auto last =
      compared.begin() + (std::min<std::ptrdiff_t>(n_chosen, std::ssize(compared)) - 1);
  std::ranges::nth_element(compared, last, std::ranges::greater(), ordered);
  return std::isfinite(*last) ? static_cast<int>(-*last) : 0;
}

// The best n_keep candidates of a head, or as many as the second stage (may be null) leaves -> kept [n_kept] slots. Returns
// how many of the head's scores were compared and are not a number. `final_scores` (may be null) are those that were ranked,
// [n_slots].
int select_candidates(std::span<const ScoredHead> layer, int kv_head, int n_keep,
                      const SecondStage* second_stage, Scratch& scratch, std::vector<int>& kept,
                      std::vector<float>* final_scores, std::vector<Fold>* folds) {
  const ScoredHead& head = layer[static_cast<size_t>(kv_head)];
  const auto note = [&](std::span<const float> scores) {
    for (size_t i = 0; final_scores != nullptr && i < scores.size(); ++i) {
      (*final_scores)[static_cast<size_t>(head.slot(i))] = scores[i];
    }
  };
  if (folds != nullptr) {
    folds->clear();
  }
  int n_nan = 0;
  const bool is_chosen_among =
      n_keep < std::ssize(head.scores) || (second_stage != nullptr && second_stage->may_drop_any());
  if (second_stage == nullptr || !is_chosen_among) {
    note(head.scores);
    n_nan = select(head.scores, n_keep, head.keep_anyway, scratch, kept);
  } else {
    const Scratch::Frame frame(scratch);
    const std::span<float> rescored = scratch.take<float>(head.scores.size());
    n_keep = folds != nullptr
                 ? second_stage->rescore_and_fold(layer, kv_head, n_keep, scratch, rescored, *folds)
                 : second_stage->rescore(layer, kv_head, n_keep, scratch, rescored);
    note(rescored);
    select(rescored, n_keep, head.keep_anyway, scratch, kept);
    n_nan = count_nan(head.scores, head.keep_anyway);
  }
  for (int& index : kept) {
    index = head.slot(static_cast<size_t>(index));
  }
  return n_nan;
}

// Any thread may come to any head or layer: all are ready for the longest, so that none allocates later.
void reserve_scratch(int n_kv_heads, bool scores_all_first, Choice& choice) {
  size_t n_most = 0;
  for (const Choice::Head& head : choice.heads) {
    n_most = std::max(n_most, static_cast<size_t>(head.rows().n));
  }
  for (Choice::Scratch& scratch : choice.threads) {
    if (scores_all_first) {
      scratch.allocator.pool.reserve(n_most * static_cast<size_t>(n_kv_heads));
    } else {
      scratch.scored.scores.reserve(n_most);
      scratch.scored.slots.reserve(n_most);
      scratch.scored.held_slots.reserve(n_most);
    }
  }
}

// Scores of a whole prompt take memory that the rows kept do not need again.
void release_after_a_prompt(Choice& choice) {
  int64_t n_scored = 0;
  for (const HeadDemand& head : choice.demands) {
    n_scored += head.n;
  }
  if (n_scored > 2 * sum(choice.n_keep)) {
    choice.scored = {};
    for (Choice::Scratch& scratch : choice.threads) {
      scratch.allocator.pool = {};
    }
  }
}

}  // namespace

NewRows Policy::merge(const LayerView& layer, int kv_head, std::span<const int> kept,
                      Scratch& scratch, std::span<const Fold> folds) const {
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  if (merger_ == nullptr) {
    return apply_folds(rows, kept, folds, scratch);
  }
  if (std::ssize(kept) == rows.n_visible()) {
    return {};
  }
  const std::span<const int> visible =
      cache::visible_slots(rows, scratch.take<int>(static_cast<size_t>(rows.n)));
  const std::span<int> lost = scratch.take<int>(visible.size());
  const auto end = std::ranges::set_difference(visible, kept, lost.begin()).out;
  LayerView view = layer;
  if (is_contiguous() && merger_->needs().keys) {
    view = with_keys_at_places(view, kv_head, 1, scratch);
  }
  view.n_sink = options_.n_sink;
  return merger_->merge({.layer = view,
                         .kv_head = kv_head,
                         .kept = kept,
                         .lost = lost.first(static_cast<size_t>(end - lost.begin()))},
                        scratch);
}

void Policy::divide(std::span<const int> n_visible, int n_kv_heads, Division& division,
                    std::span<const double> measured) const {
  const auto n_heads = static_cast<size_t>(n_kv_heads);
  const size_t n_layers = n_visible.size() / n_heads;
  const auto heads_of = [&](size_t layer) { return n_visible.subspan(layer * n_heads, n_heads); };
  division.rows.resize(n_layers);
  if (layers_ != nullptr) {
    layers_->check_shape(static_cast<int>(n_layers), n_kv_heads);
  }
  if (is_unlimited() || sharing() != Sharing::kAll) {
    for (size_t layer = 0; layer < n_layers; ++layer) {
      int64_t rows = 0;
      for (const int n : heads_of(layer)) {
        rows += sharing() == Sharing::kNone ? std::min(n, budget_rows()) : n;
      }
      division.rows[layer] = std::min(rows, int64_t{budget_rows()} * n_kv_heads);
    }
    return;
  }
  int64_t n_most = 0;
  division.shares.clear();
  for (size_t layer = 0; layer < n_layers; ++layer) {
    int64_t low = 0;
    for (const int n : heads_of(layer)) {
      low += std::min(n, n_least());
    }
    const int64_t high = sum(heads_of(layer));
    n_most = std::max(n_most, (high + n_kv_heads - 1) / n_kv_heads);
    division.rows[layer] = high;
    division.shares.push_back(
        {.target = static_cast<double>(budget_rows()), .low = low, .high = high});
  }
  const int64_t total = int64_t{budget_rows()} * static_cast<int64_t>(n_visible.size());
  if (sum(n_visible) <= total) {
    return;
  }
  if (layers_ != nullptr) {
    division.levels.resize(n_layers);
    layers_->allocate(
        {.rows = budget_rows(), .n_least = n_least(), .n_most = static_cast<int>(n_most)}, measured,
        division.levels);
    for (size_t layer = 0; layer < n_layers; ++layer) {
      division.shares[layer].target = division.levels[layer];
    }
  }
  for (Share& share : division.shares) {
    share.target *= n_kv_heads;
  }
  divide_rows(total, n_kv_heads, division);
}

// What the layers' allocator finds in the rows, to choice.measured, where some have to go.
void Policy::measure(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
                     Choice& choice) const {
  choice.measured.clear();
  const int64_t n_most = int64_t{budget_rows()} * std::ssize(choice.n_visible);
  if (layers_ == nullptr || !layers_->measures() || sum(choice.n_visible) <= n_most) {
    return;
  }
  choice.measured.resize(layers.size());
  choice.threads.resize(static_cast<size_t>(parallel.n_threads()));
  parallel.run(static_cast<int>(layers.size()), [&](int item, int thread) {
    const LayerView& layer = layers[static_cast<size_t>(item)];
    Scratch& scratch = choice.threads[static_cast<size_t>(thread)].scorer;
    const Scratch::Frame frame(scratch);
    const bool is_turned = is_contiguous() && layers_->needs().keys;
    LayerView view =
        is_turned ? with_keys_at_places(layer, 0, static_cast<int>(layer.heads.size()), scratch)
                  : layer;
    view.n_sink = options_.n_sink;
    choice.measured[static_cast<size_t>(item)] = layers_->measure(view, scratch);
  });
}

// The layers' parts of the budget, to choice.division.
void Policy::divide(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
                    Choice& choice) const {
  choice.n_visible.clear();
  for (const LayerView& layer : layers) {
    for (const cache::HeadRows& rows : layer.heads) {
      choice.n_visible.push_back(rows.n_visible());
    }
  }
  measure(layers, parallel, choice);
  divide(choice.n_visible, static_cast<int>(layers[0].heads.size()), choice.division,
         choice.measured);
}

bool Policy::choose(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
                    Choice& choice) const {
  if (is_unlimited() || layers.empty()) {
    return false;
  }
  divide(layers, parallel, choice);
  return choose(layers, choice.division.rows, parallel, choice);
}

const kernels::RowFormula* Policy::formula() const {
  const bool is_alone = !is_unlimited() && normalizers_.empty() && second_stage_ == nullptr &&
                        heads_->sharing() == Sharing::kNone && merger_ == nullptr &&
                        (layers_ == nullptr || !layers_->measures()) && spans_.empty() &&
                        !counts_rows();
  return is_alone ? scorer_->formula() : nullptr;
}

bool Policy::count(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
                   Choice& choice) const {
  if (is_unlimited() || layers.empty()) {
    return false;
  }
  divide(layers, parallel, choice);
  return count(layers, choice.division.rows, parallel, choice);
}

bool Policy::count(std::span<const LayerView> layers, std::span<const int64_t> layer_rows,
                   kernels::ParallelFor& parallel, Choice& choice) const {
  WINNOW_CHECK(formula() != nullptr);
  if (layers.empty() || !demand(layers, layer_rows, choice)) {
    return false;
  }
  choice.threads.resize(static_cast<size_t>(parallel.n_threads()));
  choice.n_keep.resize(choice.heads.size());
  const size_t n_kv_heads = layers[0].heads.size();
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    allocate(layer * n_kv_heads, n_kv_heads, choice.layer_rows[layer], choice,
             choice.threads[0].allocator);
  }
  return true;
}

// How many of n_rows each of n heads keeps.
void Policy::allocate(size_t first, size_t n, int64_t n_rows, Choice& choice,
                      HeadAllocator::Scratch& scratch) const {
  const std::span<const HeadDemand> group = std::span(choice.demands).subspan(first, n);
  int64_t n_there = 0;
  for (const HeadDemand& head : group) {
    n_there += head.n;
  }
  heads_->allocate(std::min(n_rows, n_there), group, scratch,
                   std::span(choice.n_keep).subspan(first, n));
}

// What each head has and must keep, and what is left to divide among the candidates; false where no row has to go.
bool Policy::demand(std::span<const LayerView> layers, std::span<const int64_t> layer_rows,
                    Choice& choice) const {
  const Protection protection = this->protection();
  const int n_least_candidates = options_.n_sink + n_recent_ + 1;
  choice.heads.clear();
  choice.demands.clear();
  choice.layer_rows.assign(layer_rows.begin(), layer_rows.end());  // to divide among the candidates
  bool is_over = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    int64_t n_rows = 0;
    for (int kv_head = 0; kv_head < std::ssize(layers[i].heads); ++kv_head) {
      choice.heads.push_back({layers[i], kv_head});
      choice.heads.back().layer.n_sink = options_.n_sink;
      if (roles_ != nullptr) {
        choice.heads.back().layer.roles = *roles_;
      }
      const cache::HeadRows& rows = choice.heads.back().rows();
      const int n_of_spans = n_held(rows, protection);
      const int n = rows.n_visible() - n_of_spans;
      choice.demands.push_back({.n = n,
                                .n_least = std::min(n, n_least_candidates),
                                .keep_anyway = protect(rows, protection),
                                .scores = {},
                                .ordinal = layers[i].ordinal});
      choice.layer_rows[i] -= n_of_spans;
      n_rows += n;
    }
    is_over |= n_rows > choice.layer_rows[i];
  }
  return is_over || (second_stage_ != nullptr && second_stage_->may_drop_any());
}

bool Policy::choose(std::span<const LayerView> layers, std::span<const int64_t> layer_rows,
                    kernels::ParallelFor& parallel, Choice& choice) const {
  if (is_unlimited() || layers.empty()) {
    return false;
  }
  if (!std::ranges::all_of(layers,
                           [&](const LayerView& layer) { return scorer_->is_ready(layer); }) ||
      !demand(layers, layer_rows, choice)) {
    return false;
  }
  const Protection protection = this->protection();
  const size_t n_heads = choice.heads.size();
  choice.scored_heads.resize(n_heads);
  choice.n_keep.resize(n_heads);
  choice.kept.resize(n_heads);
  choice.n_nan.resize(n_heads);
  const bool is_by_query_head =
      scorer_->ranks_query_heads() && normalizers_.empty() && second_stage_ == nullptr;
  choice.query_head_rows.resize(is_by_query_head ? n_heads : 0);
  const bool folds_values = second_stage_ != nullptr && second_stage_->folds_values();
  choice.folds.resize(folds_values ? n_heads : 0);
  if (choice.wants_scores) {
    choice.final_scores.resize(n_heads);
    for (size_t i = 0; i < n_heads; ++i) {
      choice.final_scores[i].assign(static_cast<size_t>(choice.heads[i].rows().n),
                                    std::numeric_limits<float>::quiet_NaN());
    }
  }
  choice.threads.resize(static_cast<size_t>(parallel.n_threads()));
  const auto run = [&](size_t n_items, const auto& body) {
    parallel.run(static_cast<int>(n_items), [&](int item, int thread) {
      body(static_cast<size_t>(item), choice.threads[static_cast<size_t>(thread)]);
    });
  };
  const std::span<const HeadDemand> demands(choice.demands);
  const std::span<int> n_keep(choice.n_keep);
  const size_t n_kv_heads = layers[0].heads.size();
  const auto score = [&](size_t i, Scratch& scratch, Choice::Scored& scored) {
    const Choice::Head& head = choice.heads[i];
    score_candidates(*scorer_, head, demands[i], protection, scratch, scored);
    for (const auto& normalizer : normalizers_) {
      normalizer->normalize(scored.scores, scratch);
    }
    choice.demands[i].scores = scored.scores;
    choice.scored_heads[i] = {.layer = &head.layer,
                              .kv_head = head.kv_head,
                              .scores = scored.scores,
                              .slots = scored.slots,
                              .keep_anyway = demands[i].keep_anyway,
                              .scorer = scorer_.get()};
  };
  const auto choose_rows = [&](size_t i, Scratch& scratch, const Choice::Scored& scored) {
    const size_t first = i / n_kv_heads * n_kv_heads;
    if (!choice.query_head_rows.empty()) {
      choice.query_head_rows[i] =
          query_head_rows(scored.scores, demands[i].keep_anyway, n_keep[i], scratch);
    }
    choice.n_nan[i] =
        select_candidates(std::span(choice.scored_heads).subspan(first, n_kv_heads),
                          static_cast<int>(i - first), n_keep[i], second_stage_.get(), scratch,
                          choice.kept[i], choice.wants_scores ? &choice.final_scores[i] : nullptr,
                          folds_values ? &choice.folds[i] : nullptr);
    merge_slots(scored.held_slots, choice.kept[i]);
  };

  const bool scores_all_first = heads_->sharing() != Sharing::kNone ||
                                (second_stage_ != nullptr && second_stage_->looks_at_layer());
  reserve_scratch(static_cast<int>(n_kv_heads), scores_all_first, choice);
  if (!scores_all_first) {  // nothing is compared: a head at a time
    for (size_t layer = 0; layer < layers.size(); ++layer) {
      allocate(layer * n_kv_heads, n_kv_heads, choice.layer_rows[layer], choice,
               choice.threads[0].allocator);
    }
    run(n_heads, [&](size_t i, Choice::Scratch& scratch) {
      score(i, scratch.scorer, scratch.scored);
      choose_rows(i, scratch.scorer, scratch.scored);
    });
    return true;
  }
  choice.scored.resize(std::max(choice.scored.size(), n_heads));
  run(n_heads,
      [&](size_t i, Choice::Scratch& scratch) { score(i, scratch.scorer, choice.scored[i]); });
  if (heads_->sharing() == Sharing::kAll) {
    const int64_t n_rows = sum(choice.layer_rows);
    allocate(0, n_heads, n_rows, choice, choice.threads[0].allocator);
  } else {
    run(layers.size(), [&](size_t layer, Choice::Scratch& scratch) {
      allocate(layer * n_kv_heads, n_kv_heads, choice.layer_rows[layer], choice, scratch.allocator);
    });
  }
  run(n_heads, [&](size_t i, Choice::Scratch& scratch) {
    choose_rows(i, scratch.scorer, choice.scored[i]);
  });
  release_after_a_prompt(choice);
  return true;
}

}  // namespace winnow::policy
