// A policy: scorer, allocator, protection, selection and schedule, built from a spec such as
// `knorm:budget=512,n_sink=4,n_recent=128`.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/parallel.h"
#include "policy/budget.h"
#include "policy/scorer.h"

namespace winnow::policy {

struct Method;

// The options every method has (docs/policies.md).
struct PolicyOptions {
  Budget budget;
  int n_sink = 4;     // first positions always kept
  int n_recent = -1;  // last rows always kept; -1: a quarter of the budget
  int slack = 0;      // rows a head may hold beyond its budget while decoding, before it is cut back

  template <typename Visitor>
  void visit(Visitor& v) {
    v(n_sink, "n_sink", 0, 1 << 20, "positions 0 … n_sink-1 are always kept");
    v(n_recent, "n_recent", -1, 1 << 24, "the last rows are always kept; -1: a quarter of the budget");
    v(slack, "slack", 0, 1 << 20, "rows beyond the budget that decoding may use before it evicts");
  }
};

class Policy {
 public:
  // Throws invalid_argument, naming every problem at once, with the nearest name for an unknown one. `default_budget`
  // (may be empty) is used when the spec has none.
  static Policy parse(std::string_view spec, std::string_view default_budget = {});

  Policy(Policy&&) noexcept;
  Policy& operator=(Policy&&) noexcept;
  ~Policy();

  // The canonical spec: the method and every option that is not at its default.
  const std::string& spec() const { return spec_; }
  const Method& method() const { return *method_; }
  const PolicyOptions& options() const { return options_; }
  Needs needs() const;
  // True for `full`, and for any method without a budget: nothing is ever evicted.
  bool is_unlimited() const;

  // Fixes the number of rows per KV head; called once, when the prompt is known. Throws what resolve_budget throws.
  void resolve(BudgetContext context);
  int budget_rows() const;  // per KV head; INT_MAX when unlimited
  int n_recent() const;     // as resolved

  // The slots each KV head of a layer keeps, ascending; empty when no head holds more than its share.
  std::vector<std::vector<int>> choose(const LayerView& layer, kernels::ParallelFor& parallel) const;

 private:
  Policy();
  std::string spec_;
  const Method* method_ = nullptr;
  PolicyOptions options_;
  std::unique_ptr<Scorer> scorer_;
  int budget_rows_;
  int n_recent_;
};

}  // namespace winnow::policy
