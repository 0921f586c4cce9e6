#include "policy/key_proxy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "kernels/row_kernels.h"
#include "policy/visible_scores.h"

namespace winnow::policy {
namespace {

// key · factor, in floats.
void read_key(const cache::HeadRows& rows, int slot, float factor, Scratch& scratch,
              std::span<float> key) {
  kernels::weighted_sum(kernels::keys_of(rows), {&slot, 1}, {&factor, 1}, key, scratch);
}

// The rows of one head while others come and go.
class Steps {
 public:
  Steps(const ProxyRule& rule, const ScoredHead& head, int n_keep, Scratch& scratch,
        std::vector<Fold>* folds)
      : rule_(rule),
        head_(head),
        rows_(head.rows()),
        n_keep_(n_keep),
        scratch_(scratch),
        folds_(folds),
        visible_(cache::visible_slots(rows_, scratch.take<int>(static_cast<size_t>(rows_.n)))),
        slots_(scratch.take<int>(visible_.size())),
        sums_(scratch.take<float>(visible_.size())),
        is_fixed_(scratch.take_filled(visible_.size(), uint8_t{0})),
        asked_(scratch.take<float>(visible_.size())),
        key_(scratch.take<float>(static_cast<size_t>(rows_.head_dim))) {
    if (rule.fold != ProxyRule::Fold::kNone || rule.worth == ProxyRule::Worth::kLowNorms) {
      norms_ = scratch.take<float>(static_cast<size_t>(rows_.n));
      const std::span<float> of_visible = scratch.take<float>(visible_.size());
      kernels::squared_norms(kernels::keys_of(rows_), visible_, of_visible, scratch);
      for (size_t i = 0; i < visible_.size(); ++i) {
        norms_[static_cast<size_t>(visible_[i])] = std::sqrt(of_visible[i]);
      }
    }
    if (rule.noise.is_there()) {
      noise_ = scratch.take<double>(static_cast<size_t>(rows_.n));
      for (const int slot : visible_) {
        noise_[static_cast<size_t>(slot)] = frozen_gumbel(rule.noise.seed, rows_.positions[slot]);
      }
    }
  }

  // What goes of all rows, in the order in which they came: to `rescored`. Returns how many candidates stay.
  int run(std::span<float> rescored) {
    size_t candidate = 0;
    for (const int slot : visible_) {
      const bool is_candidate = candidate < head_.scores.size() && head_.slot(candidate) == slot;
      take_in(slot, !is_candidate || candidate < static_cast<size_t>(head_.keep_anyway.n_first));
      candidate += is_candidate ? 1 : 0;
      n_candidates_ += is_candidate ? 1 : 0;
      while (n_candidates_ > n_keep_) {
        let_go();
      }
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    size_t held = 0;
    for (size_t i = 0; i < head_.scores.size(); ++i) {
      while (held < n_ && slots_[held] < head_.slot(i)) {
        ++held;
      }
      rescored[i] = held < n_ && slots_[held] == head_.slot(i) ? kInfinity : -kInfinity;
    }
    for (size_t i = 0; rows_.notes != nullptr && i < n_; ++i) {
      rows_.notes[slots_[i]] = sums_[i];
    }
    return n_candidates_;
  }

 private:
  bool sums_weights() const { return rule_.worth == ProxyRule::Worth::kSum; }
  std::span<const int> held() const { return slots_.first(n_); }
  int position(size_t i) const { return rows_.positions[slots_[i]]; }

  void take_in(int slot, bool is_fixed) {
    const float note = rows_.notes == nullptr ? cache::kNotNoted : rows_.notes[slot];
    if (sums_weights() && note == cache::kNotNoted && n_ > 0) {
      const std::span<float> weights = asked_.first(n_);
      key_weights(*head_.layer, head_.kv_head, slot, held(), scratch_, weights);
      for (size_t i = 0; i < n_; ++i) {
        sums_[i] = rule_.decay * sums_[i] + (std::isnan(weights[i]) ? 0.0F : weights[i]);
      }
    }
    const float first_sum = n_ == 0 ? 1 : 0;
    slots_[n_] = slot;
    sums_[n_] = note == cache::kNotNoted ? first_sum : note;
    is_fixed_[n_++] = is_fixed ? 1 : 0;
  }

  // What held rows are compared by, to asked_ [n_].
  void compare() {
    if (rule_.worth == ProxyRule::Worth::kLast) {
      read_key(rows_, slots_[n_ - 1], head_.layer->attention.scale, scratch_, key_);
      kernels::row_dots(kernels::keys_of(rows_), held(), key_, asked_.first(n_), scratch_);
    } else if (rule_.worth == ProxyRule::Worth::kLowNorms) {
      std::ranges::transform(held(), asked_.begin(),
                             [&](int slot) { return -norms_[static_cast<size_t>(slot)]; });
    } else {
      std::copy_n(sums_.begin(), n_, asked_.begin());
    }
    const double tau = noise_.empty() ? 0 : rule_.noise.tau(position(n_ - 1));
    for (size_t i = 0; !noise_.empty() && i < n_; ++i) {
      asked_[i] += static_cast<float>(tau * noise_[static_cast<size_t>(slots_[i])]);
    }
  }

  // The first of the last rows that stay, to first_recent_.
  void find_recent() {
    int n_last = head_.keep_anyway.n_last;
    first_recent_ = n_;
    for (; first_recent_ > 0 && n_last > 0; --first_recent_) {
      n_last -= is_fixed_[first_recent_ - 1] == 0 ? 1 : 0;
    }
  }
  // Whether the row may go: it is no sink, none that a span holds, and not one of the last.
  bool is_free(size_t i) const { return is_fixed_[i] == 0 && i < first_recent_; }

  void let_go() {
    compare();
    find_recent();
    // Chunks of the rows that may go, in order; the lowest mean goes, of equal ones the first.
    double lowest = std::numeric_limits<double>::infinity();
    size_t first = n_;
    size_t end = n_;
    for (size_t i = 0; i < first_recent_;) {
      if (!is_free(i)) {
        ++i;
        continue;
      }
      const size_t begin = i;
      double sum = 0;
      double n_free = 0;
      for (; i < first_recent_ && n_free < rule_.chunk; ++i) {
        if (is_free(i)) {
          sum += std::isnan(asked_[i]) ? -std::numeric_limits<double>::infinity()
                                       : static_cast<double>(asked_[i]);
          ++n_free;
        }
      }
      if (first == n_ || sum / n_free < lowest) {
        lowest = sum / n_free;
        first = begin;
        end = i;
      }
    }
    WINNOW_CHECK(first < n_);
    if (!rule_.drops_whole_chunks) {  // no more than must
      for (size_t i = first, best = n_; i < end; ++i) {
        if (is_free(i) && (best == n_ || asked_[i] < asked_[best])) {
          best = first = i;
        }
      }
      end = first + 1;
    }
    size_t to = first;
    for (size_t i = first; i < end; ++i) {
      if (is_free(i)) {
        fold(i);
      }
    }
    for (size_t i = first; i < n_; ++i) {
      if (i < end && is_free(i)) {
        --n_candidates_;
        continue;
      }
      slots_[to] = slots_[i];
      sums_[to] = sums_[i];
      is_fixed_[to++] = is_fixed_[i];
    }
    n_ = to;
  }

  // Into the row of the most similar key.
  void fold(size_t leaving) {
    if (folds_ == nullptr || rule_.fold == ProxyRule::Fold::kNone) {
      return;
    }
    const std::span<float> dots = asked_.first(n_);
    read_key(rows_, slots_[leaving], 1, scratch_, key_);
    kernels::row_dots(kernels::keys_of(rows_), held(), key_, dots, scratch_);
    const double own_norm = static_cast<double>(norms_[static_cast<size_t>(slots_[leaving])]);
    double best = -std::numeric_limits<double>::infinity();
    size_t taker = n_;
    for (size_t i = 0; i < n_; ++i) {
      const double cosine = static_cast<double>(dots[i]) / own_norm /
                            static_cast<double>(norms_[static_cast<size_t>(slots_[i])]);
      if (i != leaving && position(i) >= head_.layer->n_sink && cosine > best) {
        best = cosine;
        taker = i;
      }
    }
    if (taker == n_ || !is_passed(leaving, taker)) {
      return;
    }
    const double weight = rule_.fold == ProxyRule::Fold::kMean ? 0.5 : std::clamp(best, 0.0, 1.0);
    folds_->push_back(
        {.from = slots_[leaving], .to = slots_[taker], .weight = static_cast<float>(weight)});
    sums_[taker] += sums_[leaving];
  }

  // With probability clamp(what the row that goes is worth / what the other is, 0, 1).
  bool is_passed(size_t leaving, size_t taker) const {
    if (!rule_.is_gated) {
      return true;
    }
    const double chance =
        frozen_draw(FrozenDraw::kGate, rule_.fold_seed, {head_.layer->layer, position(leaving)});
    return chance * static_cast<double>(sums_[taker]) < static_cast<double>(sums_[leaving]);
  }

  const ProxyRule& rule_;
  const ScoredHead& head_;
  const cache::HeadRows& rows_;
  int n_keep_;
  Scratch& scratch_;
  std::vector<Fold>* folds_;
  std::span<const int> visible_;
  // Of the n_ rows that are held, in order of position.
  std::span<int> slots_;
  std::span<float> sums_;
  std::span<uint8_t> is_fixed_;
  std::span<float> asked_;
  std::span<float> key_;          // [head_dim]
  std::span<float> norms_ = {};   // [n slots] of keys
  std::span<double> noise_ = {};  // [n slots]
  size_t n_ = 0;
  size_t first_recent_ = 0;
  int n_candidates_ = 0;  // of these, those that are chosen among
};

}  // namespace

void key_weights(const LayerView& layer, int kv_head, int asking, std::span<const int> slots,
                 Scratch& scratch, std::span<float> weights) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  const std::span<float> key = scratch.take<float>(static_cast<size_t>(rows.head_dim));
  read_key(rows, asking, layer.attention.scale, scratch, key);
  kernels::row_dots(kernels::keys_of(rows), slots, key, weights, scratch);
  kernels::softmax(weights);
}

void KeyProxy::score(const LayerView& layer, int kv_head, Scratch& scratch,
                     std::span<float> scores) const {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  WINNOW_CHECK(std::ssize(scores) == rows.n);
  const std::span<const int> slots = cache::visible_slots(rows, scratch.take<int>(scores.size()));
  const std::span<float> worth = scratch.take_filled(slots.size(), 0.0F);
  if (rule_.worth == ProxyRule::Worth::kLowNorms) {
    kernels::squared_norms(kernels::keys_of(rows), slots, worth, scratch);
    std::ranges::transform(worth, worth.begin(), [](float norm) { return -std::sqrt(norm); });
  } else if (!slots.empty()) {
    key_weights(layer, kv_head, slots.back(), slots, scratch, worth);
    for (size_t i = 0; i < slots.size(); ++i) {
      const float note = rows.notes == nullptr ? 0 : std::max(rows.notes[slots[i]], 0.0F);
      worth[i] = std::isnan(worth[i]) ? note : note + worth[i];
    }
  }
  score_visible(slots, worth, 1, scores);
}

int KeyProxy::rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
                      std::span<float> rescored) const {
  const Scratch::Frame frame(scratch);
  return Steps(rule_, layer[static_cast<size_t>(kv_head)], n_keep, scratch, nullptr).run(rescored);
}

int KeyProxy::rescore_and_fold(std::span<const ScoredHead> layer, int kv_head, int n_keep,
                               Scratch& scratch, std::span<float> rescored,
                               std::vector<Fold>& folds) const {
  const Scratch::Frame frame(scratch);
  return Steps(rule_, layer[static_cast<size_t>(kv_head)], n_keep, scratch, &folds).run(rescored);
}

}  // namespace winnow::policy
