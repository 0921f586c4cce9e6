// A policy: scorer, allocator, protection, selection and schedule, built from a spec such as
// `knorm:budget=512,n_sink=4,n_recent=128`.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/budget.h"
#include "policy/option_reader.h"
#include "policy/scorer.h"

namespace winnow::kernels {
class ParallelFor;
}

namespace winnow::policy {

struct Method;

// The options every method has (docs/policies.md).
struct PolicyOptions {
  Budget budget;
  int n_sink = 4;     // first positions always kept
  int n_recent = -1;  // last rows always kept; -1: a quarter of the budget
  int slack = 0;      // rows that decoding may use beyond the budget before a head is cut back

  template <typename Visitor>
  void visit(Visitor& v) {
    v(budget, "budget", "what a KV head may keep on average, protected rows included");
    v(n_sink, "n_sink", 0, 1 << 20, "positions 0 … n_sink-1 are always kept");
    v(n_recent, "n_recent", -1, 1 << 24,
      "the last rows are always kept; -1: a quarter of the budget");
    v(slack, "slack", 0, 1 << 20, "rows beyond the budget that decoding may use before it evicts");
  }
};

// Names for sets of options: `preset=paper` is short for `n_recent=0`. An option that is given wins over a preset.
struct PresetOptions {
  std::string preset = "default";

  template <typename Visitor>
  void visit(Visitor& v) {
    v(preset, "preset", {"default", "paper"}, "paper: n_recent=0, as the methods were published");
  }
};

// PresetOptions and PolicyOptions.
std::vector<OptionDescription> describe_policy_options();

// [n_layers * n_kv_heads, n_kept*], ascending slots
using KeptSlots = std::vector<std::vector<int>>;

// What choose() decided, and its scratch: used again and again, it allocates nothing once it has grown.
struct Choice {
  KeptSlots kept;

  struct Head {
    LayerView layer;
    int kv_head;

    const cache::HeadRows& rows() const { return layer.heads[static_cast<size_t>(kv_head)]; }
  };
  std::vector<Head> heads;  // [n_layers * n_kv_heads]
  std::vector<int> n_keep;  // the same
  struct Scratch {
    std::vector<float> scores;  // [n_slots], then [n_visible]
    std::vector<int> slots;     // [n_slots]
    std::vector<uint64_t> keys;
    winnow::Scratch scorer;
  };
  std::vector<Scratch> threads;  // [n_threads]
};

class Policy {
 public:
  // Throws invalid_argument, naming every problem at once, with the nearest name for an unknown one. `default_budget`
  // (may be empty) is used when the spec has none. `full` takes no options and no budget; all others need a budget.
  static Policy parse(std::string_view spec, std::string_view default_budget = {});

  // The canonical spec: the method, the budget and every option that is not at its default, presets spelled out.
  // Parses to the same policy.
  const std::string& spec() const { return spec_; }
  const Method& method() const { return *method_; }
  const PolicyOptions& options() const { return options_; }
  Needs needs() const;
  // True for `full`: nothing is ever evicted.
  bool is_unlimited() const;

  // Fixes the number of rows per KV head, when the prompt is known; n_sink and n_recent of the context are the
  // policy's own. May be called again when the prompt has grown. Throws what resolve_budget throws. A budget in rows,
  // or none, is resolved from the start.
  void resolve(BudgetContext context);
  bool is_resolved() const { return budget_rows_ > 0; }
  // The following need a resolved policy.
  int budget_rows() const;  // per KV head; INT_MAX when unlimited
  int n_recent() const;     // as resolved

  // What every KV head of the given layers keeps, to choice.kept; false when no head holds more than its share. All heads
  // are scored in one parallel step, so decoding passes all layers at once. Rows hidden from attention count as evicted:
  // they take up no budget and are never kept.
  bool choose(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
              Choice& choice) const;

 private:
  Policy() = default;
  std::string spec_;
  const Method* method_ = nullptr;
  PolicyOptions options_;
  std::shared_ptr<const Scorer> scorer_;  // copies share it: scoring changes nothing
  int budget_rows_ = 0;                   // 0: not resolved
  int n_recent_ = 0;
};

}  // namespace winnow::policy
