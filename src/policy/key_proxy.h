// What the methods @proxy share: caches that see no queries let keys stand in for them, and take rows in one by one.
//
// As the caches of VeloxQuant-MLX do: when a row comes, its key asks the rows that are held, as a query would,
// a(j) = softmax over j of k_new · k(j) · scale; while there are more rows than the budget, one goes. What each row holds of
// earlier sums is its note, so that the rows that stay do not depend on how the input was cut, for given keys.
#pragma once

#include <span>
#include <vector>

#include "policy/frozen_noise.h"
#include "policy/transform.h"

namespace winnow::policy {

// weights [slots] = the softmax weights that the rows at `slots` get of the key at `asking` (not a number where dot products are
// not).
void key_weights(const LayerView& layer, int kv_head, int asking, std::span<const int> slots,
                 Scratch& scratch, std::span<float> weights);

// Which row goes, and what becomes of it.
struct ProxyRule {
  // What a row is worth.
  enum class Worth {
    kSum,       // the weights of all keys that came after it
    kLast,      // that of the newest key alone
    kLowNorms,  // less, the longer its key is
  };
  Worth worth = Worth::kSum;
  float decay = 1;                  // kSum: what sums are multiplied with before each key asks
  int chunk = 1;                    // so many neighbours are compared by their mean worth
  bool drops_whole_chunks = false;  // else the row of the chunk that is worth least goes
  FrozenNoise noise = {};

  // Whether a row that goes is folded into the value of the one with the most similar key that stays and is no sink.
  enum class Fold { kNone, kBySimilarity, kMean };
  Fold fold = Fold::kNone;
  bool is_gated = true;  // at random, by what the row is worth beside the other
  int fold_seed = 0;
};

// Row by row: what a head keeps of its rows.
class KeyProxy final : public Scorer, public SecondStage {
 public:
  explicit KeyProxy(const ProxyRule& rule) : rule_(rule) {}

  Needs needs() const override {
    return {.keys = true, .values = folds_values(), .notes = rule_.worth == ProxyRule::Worth::kSum};
  }
  bool may_be_negative() const override { return rule_.worth == ProxyRule::Worth::kLowNorms; }
  const SecondStage* chooser() const override { return this; }
  bool folds_values() const override { return rule_.fold != ProxyRule::Fold::kNone; }

  // What heads are compared by before it is known how many rows of each stay: the notes so far, and what the newest key says.
  void score(const LayerView& layer, int kv_head, Scratch& scratch,
             std::span<float> scores) const override;
  // Rows that stay get +infinity, the others -infinity.
  int rescore(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
              std::span<float> rescored) const override;
  int rescore_and_fold(std::span<const ScoredHead> layer, int kv_head, int n_keep, Scratch& scratch,
                       std::span<float> rescored, std::vector<Fold>& folds) const override;

 private:
  ProxyRule rule_;
};

}  // namespace winnow::policy
