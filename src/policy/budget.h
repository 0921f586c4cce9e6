// How many rows a KV head may keep: the spelling `512`, `10%`, `64MiB`, and what it comes to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "policy/spans.h"
#include "roles/role.h"

namespace winnow::policy {

inline constexpr int kMaxBudgetRows = 1 << 30;

struct Budget {
  enum class Unit {
    kUnlimited,  // none was given
    kRows,       // per KV head, on average
    kPercent,    // of the document's rows
    kBytes,      // of all rows together
  };
  Unit unit = Unit::kUnlimited;
  double amount = 0;

  // The shortest spelling, which parses to the same budget: "1.5MiB"; "unlimited" for no budget.
  std::string to_string() const;
};

// Throws invalid_argument: zero, negative, over 100 %, not a number, unknown unit (allowed: rows without a unit, %,
// KiB, MiB, GiB, KB, MB, GB). Only % and bytes may have decimals; bytes are rounded to a whole number.
Budget parse_budget(std::string_view text);

struct BudgetContext {
  int64_t n_document = 0;  // tokens that a percentage refers to
  int64_t n_extra = 0;     // question and template tokens: on top of a percentage
  int64_t row_bytes = 0;   // bytes of one row of one KV head
  int64_t n_heads = 0;     // KV heads of all layers
  int n_sink = 0;
  int n_recent = -1;  // -1: default_n_recent()
  std::vector<PositionSpan> spans =
      {};  // protected beside sinks and recent rows; ascending, none overlap
  std::vector<roles::Role> roles = {};  // of the positions from 0 on, as LayerView has them
};

// Rows per KV head of a budget that was given. A percentage rounds up, and up to what sinks, recent rows and the protected
// rows among n_extra leave one row beside. Throws invalid_argument when bytes come to no row, or what is protected leaves nothing to choose (all numbers in the
// message).
int resolve_budget(const Budget& budget, const BudgetContext& context);

// winnow's default recent window for a budget of so many rows: a quarter of it.
int default_n_recent(int budget_rows);

// What is wrong with protecting so many rows within a budget, with all numbers; empty when a row is left to choose.
// n_recent may be -1; n_in_spans: of prompts, beside the sinks.
std::string protection_problem(int budget_rows, int n_sink, int n_recent, int64_t n_in_spans = 0);

}  // namespace winnow::policy
