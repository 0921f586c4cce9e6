// The optional part between scoring and selecting: other scores in the place of the scorer's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/scratch.h"
#include "policy/merger.h"
#include "policy/scorer.h"
#include "policy/select.h"

namespace winnow::policy {

// Brings the scores of different heads to one scale, so that they can be pooled or multiplied. It knows no budget, and
// allocators compare what it returns.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // In place: the scores of the rows of one head [n] that are chosen among. The results are in the same order, and no finite one is negative;
  // NaN stays NaN and has no part in the others.
  virtual void normalize(std::span<float> scores, Scratch& scratch) const = 0;
};

// The rows of one KV head that are chosen among, in order of position: the visible ones, without those that spans
// protect.
struct ScoredHead {
  const LayerView* layer;
  int kv_head;
  std::span<const float> scores;   // [n]
  std::span<const int> slots;      // [n]; empty where they are all slots
  Protected keep_anyway;           // of the n rows
  const Scorer* scorer = nullptr;  // whose scores these were, before normalizers

  const cache::HeadRows& rows() const { return layer->heads[static_cast<size_t>(kv_head)]; }
  int slot(size_t i) const { return slots.empty() ? static_cast<int>(i) : slots[i]; }
};

// Decides which rows of a head fill its share, once the share is known. Allocators have compared the scores that it
// begins with. Selection ranks what it returns, and protects.
class SecondStage {
 public:
  virtual ~SecondStage() = default;

  // Beside what the scorer needs.
  virtual Needs needs() const { return {}; }
  // Whether scores are multiplied, which turns the order of negative ones round.
  virtual bool needs_non_negative_scores() const { return false; }
  // Whether a head's choice depends on the scores of the other heads of its layer.
  virtual bool looks_at_layer() const { return false; }
  // Whether rows are scored again, as if others were not there: ScoredHead::scorer. That knows neither keys at other places nor
  // what other heads hold then.
  virtual bool asks_scorer() const { return false; }
  // Whether rows may go where a head's share has room for all of them.
  virtual bool may_drop_any() const { return false; }

  // New scores [n] for the head layer[kv_head], of whose n rows n_keep < n are to stay (n where may_drop_any()). The others of `layer` [n_kv_heads]
  // are there where looks_at_layer(). Returns how many rows stay: n_keep, or fewer, but all protected ones. Called for
  // different heads at the same time.
  virtual int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
                      std::span<float> rescored) const = 0;

  // Whether it also says to whom rows that go leave their values. Then this is called in place of rescore(), with `folds`
  // empty.
  virtual bool folds_values() const { return false; }
  virtual int rescore_and_fold(std::span<const ScoredHead> layer, int kv_head, int n_keep,
                               Scratch& scratch, std::span<float> rescored,
                               std::vector<Fold>& /*folds*/) const {
    return rescore(layer, kv_head, n_keep, scratch, rescored);
  }
};

}  // namespace winnow::policy
