// A policy: scorer, transforms, allocators, protection, selection and schedule, built from a spec such as
// `snapkv+chunkkv+adakv:budget=512,n_sink=4,n_recent=128`.
#pragma once

#include <array>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/page_reads.h"
#include "policy/allocator.h"
#include "policy/budget.h"
#include "policy/division.h"
#include "policy/merger.h"
#include "policy/option_reader.h"
#include "policy/protect.h"
#include "policy/scorer.h"
#include "policy/transform.h"

namespace winnow::kernels {
class ParallelFor;
}

namespace winnow::policy {

struct AllocatorPart;
struct MergerPart;
struct Method;
struct TransformPart;

// The options every method has (docs/policies.md).
struct PolicyOptions {
  Budget budget;
  int n_sink = 4;                           // first positions always kept
  int n_recent = -1;                        // last rows always kept; -1: a quarter of the budget
  std::vector<ProtectedPart> protect = {};  // parts of the prompts that always stay
  // Rows beyond the budget that may be used before heads are cut back; -1: the method's.
  int slack = -1;
  std::string positions = "original";  // which ones keys and queries are rotated to

  template <typename Visitor>
  void visit(Visitor& v) {
    v(budget, "budget", "what a KV head may keep on average, protected rows included");
    v(n_sink, "n_sink", 0, 1 << 20, "positions 0 … n_sink-1 are always kept");
    v(n_recent, "n_recent", -1, 1 << 24,
      "the last rows are always kept; -1: a quarter of the budget");
    v(protect, "protect",
      "parts of the prompts that are always kept, beside sinks and the last rows");
    v(slack, "slack", -1, 1 << 20,
      "rows beyond the budget that decoding, and --evict per-chunk, may use before rows go; -1: "
      "what the method's cost calls for, at most an eighth of the budget");
    v(positions, "positions", {"original", "contiguous", "stalled"},
      "where attention sees a row: at its own position, or at its place among the rows kept; "
      "stalled: a published fault, new tokens are rotated as if rows that are gone had never been");
  }
};

// Names for sets of options: `preset=paper` is short for `n_recent=0`. An option that is given wins over a preset.
struct PresetOptions {
  std::string preset = "default";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(preset, "preset", {"default", "paper", "seed", "authors"},
      "paper: n_recent=0, as the methods were published; seed and authors: as two implementations "
      "of "
      "Q-Filters have it, budget=512,n_recent=0 and budget=128,n_sink=0,n_recent=64");
  }
};

// PresetOptions and PolicyOptions.
std::vector<OptionDescription> describe_policy_options();

// [n_layers * n_kv_heads, n_kept*], ascending slots
using KeptSlots = std::vector<std::vector<int>>;

// What choose() decided, and its scratch: used again and again, it allocates nothing once it has grown.
struct Choice {
  KeptSlots kept;
  // [n_layers * n_kv_heads, n_slots] where they are wanted: the scores that selection ranked, after all transforms; NaN for
  // rows that were not chosen among.
  bool wants_scores = false;
  std::vector<std::vector<float>> final_scores;

  struct Head {
    LayerView layer;
    int kv_head;

    const cache::HeadRows& rows() const { return layer.heads[static_cast<size_t>(kv_head)]; }
  };
  std::vector<Head> heads;               // [n_layers * n_kv_heads]
  std::vector<HeadDemand> demands;       // the same
  std::vector<ScoredHead> scored_heads;  // the same
  std::vector<int> n_keep;               // the same
  std::vector<int> n_visible;            // the same
  std::vector<int64_t> layer_rows;       // [n_layers] to be divided, without what spans protect
  std::vector<double> measured;          // [n_layers] where the layers' allocator looks at rows
  Division division;                     // of the budget over the layers

  struct Scored {
    std::vector<float> scores;    // [n_slots], then [n_candidates]
    std::vector<int> slots;       // [n_candidates], where these are not all
    std::vector<int> held_slots;  // by spans, and no candidates
  };
  std::vector<Scored> scored;  // [n_layers * n_kv_heads] where heads are compared
  struct Scratch {
    Scored scored;
    HeadAllocator::Scratch allocator;
    winnow::Scratch scorer;
  };
  std::vector<Scratch> threads;  // [n_threads]
  std::vector<int>
      n_nan;  // [n_layers * n_kv_heads] scores of the method that were compared and are not a number

  // [n_layers * n_kv_heads] where the scorer ranks by query heads and selection sees its scores, else empty: the rows that each
  // query head has chosen, of those that are kept for the group.
  std::vector<int> query_head_rows;

  std::vector<std::vector<Fold>> folds;  // [n_layers * n_kv_heads] where the method folds values
  std::span<const Fold> folds_of(size_t head) const {
    return head < folds.size() ? std::span<const Fold>(folds[head]) : std::span<const Fold>{};
  }

  int64_t n_nan_scores() const { return std::accumulate(n_nan.begin(), n_nan.end(), int64_t{0}); }
};

class Policy {
 public:
  // Throws invalid_argument, naming every problem at once, with the nearest name for an unknown one. `default_budget`
  // (may be empty) is used when the spec has none. `full` takes no options and no budget; all others need a budget.
  static Policy parse(std::string_view spec, std::string_view default_budget = {});
  // `full`, with what others will need kept for them: forks of such a sequence can be cut to any policy of these needs.
  static Policy full(const Needs& watched = {});

  // The canonical spec: the method, its transforms, allocators and merger, the budget and every option that is not at its default, presets spelled out.
  // Parses to the same policy.
  const std::string& spec() const { return spec_; }
  const Method& method() const { return *method_; }
  // Whose rows make up for whose, by all allocators together.
  Sharing sharing() const;
  // Whether a prompt must have been read in all layers before any is cut: layer-major order is impossible.
  bool needs_all_layers() const;
  const PolicyOptions& options() const { return options_; }
  Needs needs() const;
  const Scorer* scorer() const { return scorer_.get(); }  // null for `full`
  // True for `full`: nothing is ever evicted.
  bool is_unlimited() const;

  // Fixes the number of rows per KV head, when the prompt is known; n_sink and n_recent of the context are the
  // policy's own. May be called again when the prompt has grown. A budget in bytes holds the method's slack too. Throws
  // what resolve_budget throws. A budget in rows, or none, is resolved from the start.
  void resolve(BudgetContext context);
  // Whether attention sees the rows of a head at places without gaps, right before the query, instead of at their own
  // positions.
  bool is_contiguous() const { return options_.positions == "contiguous"; }
  // As programs were published whose position is the number of rows kept: keys stay where they were rotated to, so that new
  // ones come to lie upon each other.
  bool is_stalled() const { return options_.positions == "stalled"; }
  // Whether the next token is rotated to the number of rows held, and not to that of the positions fed.
  bool counts_rows() const { return is_contiguous() || is_stalled(); }
  // The filters that it scores by, which are of one model; null where there are none.
  const Filters* filters() const;
  // What static scores in its cache are projections on; null where it needs none, or keys' squared norms.
  const kernels::ScoreDirections* score_directions() const;
  // {layer, KV head} of those that have none of the projections that the method scores by, and fall back to keys' norms.
  std::vector<std::array<int, 2>> guarded_heads() const;
  bool is_resolved() const { return budget_rows_ > 0; }
  // The following need a resolved policy.
  int budget_rows() const;  // per KV head, on average; INT_MAX when unlimited
  int64_t extra_rows() const { return extra_rows_; }  // of these, on top of a percentage
  int n_recent() const;                               // as resolved
  Protection protection() const;
  int slack() const;
  // The most rows that one head may keep: what an allocator gives it of the budgets of others included.
  int64_t most_rows(int n_layers, int n_kv_heads) const;
  // The most that one may hold before heads are cut again: slack included.
  int64_t most_held_rows(int n_layers, int n_kv_heads) const;

  // The rows that each layer keeps in all its heads, to division.rows [n_layers], of n_visible [n_layers, n_kv_heads] that
  // there are: all the layers that policies cut. The sum of the budgets, or all rows where there are fewer. `measured`
  // [n_layers]: what an allocator that looks at rows has found; without it, layers are alike to such a one. Throws
  // invalid_argument where a table of the user's is of another shape.
  void divide(std::span<const int> n_visible, int n_kv_heads, Division& division,
              std::span<const double> measured = {}) const;

  // What every KV head of the given layers keeps, to choice.kept, when layers keep `layer_rows` [n_layers]; false when none
  // holds more. Where heads of several layers share, all must be given. Heads are scored in one parallel step, so decoding
  // passes all layers at once. Rows hidden from attention count as evicted: they take up no budget and are never kept.
  bool choose(std::span<const LayerView> layers, std::span<const int64_t> layer_rows,
              kernels::ParallelFor& parallel, Choice& choice) const;
  // The same for all layers that policies cut, as divide() says.
  bool choose(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
              Choice& choice) const;

  // What heads choose their rows by, where that is one head's formula and nothing else: null where something else changes scores,
  // compares heads or layers, protects parts of prompts or merges.
  const kernels::RowFormula* formula() const;
  // As choose() for such a policy, up to how many rows each head keeps: to choice.n_keep and choice.demands.
  bool count(std::span<const LayerView> layers, std::span<const int64_t> layer_rows,
             kernels::ParallelFor& parallel, Choice& choice) const;
  bool count(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
             Choice& choice) const;

  // Which of the rows that are kept a generated token reads.
  const kernels::PageRule& page_rule() const { return page_rule_; }

  // Whether rows that stay change where others go.
  bool merges() const {
    return merger_ != nullptr || (second_stage_ != nullptr && second_stage_->folds_values());
  }
  bool changes_keys() const { return merger_ != nullptr && merger_->changes_keys(); }
  // What becomes of the rows at `kept` of a head when it keeps them alone, by the policy's merger or the folds that choose()
  // left: nothing where no visible one goes, or nothing is merged. The result lies in `scratch`, until the caller's frame ends.
  NewRows merge(const LayerView& layer, int kv_head, std::span<const int> kept, Scratch& scratch,
                std::span<const Fold> folds = {}) const;

 private:
  Policy() = default;
  std::string spec_;
  const Method* method_ = nullptr;
  PolicyOptions options_;
  void make_transforms(std::span<const TransformPart* const> parts, OptionReader& reader);
  void check_changed_keys(std::string_view merger, OptionReader& reader) const;
  void check_scored_again(OptionReader& reader) const;
  void make_allocators(std::span<const AllocatorPart* const> parts, OptionReader& reader);
  void let_method_choose(OptionReader& reader);
  bool demand(std::span<const LayerView> layers, std::span<const int64_t> layer_rows,
              Choice& choice) const;
  void allocate(size_t first, size_t n, int64_t n_rows, Choice& choice,
                HeadAllocator::Scratch& scratch) const;
  void divide(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
              Choice& choice) const;
  void measure(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
               Choice& choice) const;
  int n_least() const;  // rows that every head keeps, where it has them

  std::shared_ptr<const Scorer> scorer_;  // copies share the parts: using them changes nothing
  std::vector<std::shared_ptr<const Normalizer>> normalizers_;  // in order
  std::shared_ptr<const SecondStage> second_stage_;  // null: scores are compared as they are
  std::shared_ptr<const LayerAllocator> layers_;     // null: every layer has the same budget
  std::shared_ptr<const HeadAllocator> heads_;
  std::shared_ptr<const Merger> merger_;  // null: what goes is gone
  kernels::PageRule page_rule_;           // that wants nothing: all rows are read
  Needs watched_;                         // of full()
  int budget_rows_ = 0;                   // 0: not resolved
  int n_recent_ = 0;
  int64_t extra_rows_ = 0;
  int slack_ = 0;
  std::vector<PositionSpan> spans_;                        // protected, as resolved
  std::shared_ptr<const std::vector<roles::Role>> roles_;  // likewise; null: none
};

}  // namespace winnow::policy
