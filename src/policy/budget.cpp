#include "policy/budget.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "policy/protect.h"

namespace winnow::policy {
namespace {

struct ByteUnit {
  std::string_view name;
  double bytes;
};

// KB spells any whole number of bytes in three decimals.
constexpr std::array<ByteUnit, 6> kByteUnits{{
    {"GiB", 1024.0 * 1024 * 1024},
    {"MiB", 1024.0 * 1024},
    {"KiB", 1024.0},
    {"GB", 1e9},
    {"MB", 1e6},
    {"KB", 1e3},
}};
constexpr size_t kMaxDigits = 20;
constexpr double kMaxBytes = 1e15;  // whole numbers up to here are exact in a double

[[noreturn]] void refuse(std::string_view text, const std::string& reason) {
  throw Error(ErrorCode::kInvalidArgument, "budget '" + std::string(text) + "': " + reason);
}

// Rounds up, but not because 1.1 % of 3000 is 33.000000000000004 in binary.
int64_t round_up(double rows) {
  return std::llround(std::ceil(rows - rows * 1e-12));
}

// The smallest budget that leaves a row to choose. With the default recent window that is the smallest b with
// n_sink + b / 4 < b, in integers.
int64_t smallest_budget(int64_t n_sink, int n_recent) {
  return n_recent < 0 ? n_sink + n_sink / 3 + 1 : n_sink + n_recent + 1;
}

double rows_from_bytes(const Budget& budget, const BudgetContext& context) {
  WINNOW_CHECK(context.row_bytes > 0 && context.n_heads > 0);
  const int64_t step_bytes = context.row_bytes * context.n_heads;
  const double rows = std::floor(budget.amount / static_cast<double>(step_bytes));
  if (rows < 1) {
    refuse(budget.to_string(), number_text(budget.amount) +
                                   " bytes are less than one row for each of " +
                                   std::to_string(context.n_heads) + " KV heads, which takes " +
                                   std::to_string(step_bytes) + " bytes");
  }
  return rows;
}

}  // namespace

std::string Budget::to_string() const {
  switch (unit) {
    case Unit::kUnlimited:
      return "unlimited";
    case Unit::kRows:
      return number_text(amount);
    case Unit::kPercent:
      return number_text(amount) + "%";
    case Unit::kBytes:
      break;
  }
  std::string shortest;
  for (const ByteUnit& byte_unit : kByteUnits) {
    const std::string text = number_text(amount / byte_unit.bytes) + std::string(byte_unit.name);
    if (shortest.empty() || text.size() < shortest.size()) {
      shortest = text;
    }
  }
  return shortest;
}

Budget parse_budget(std::string_view text) {
  const std::string_view spelled = trim(text);
  const size_t n_number = std::min(spelled.find_first_not_of("0123456789."), spelled.size());
  const std::string_view number = spelled.substr(0, n_number);
  const std::string_view unit = trim(spelled.substr(n_number));
  const bool is_number = !number.empty() && number.front() != '.' && number.back() != '.' &&
                         std::count(number.begin(), number.end(), '.') <= 1;
  if (!is_number) {
    refuse(spelled,
           "not a budget (allowed: rows per KV head as in 512, a percentage of the "
           "document as in 10%, bytes as in 64MiB)");
  }
  if (number.size() > kMaxDigits) {
    refuse(spelled, "more than " + std::to_string(kMaxDigits) + " digits");
  }
  double amount = 0;
  WINNOW_CHECK(std::from_chars(number.data(), number.data() + number.size(), amount).ec ==
               std::errc());
  if (amount == 0) {
    refuse(spelled, "must be above 0");
  }
  if (unit.empty()) {
    if (number.find('.') != std::string_view::npos) {
      refuse(spelled,
             "rows are whole numbers (allowed: 1 to " + std::to_string(kMaxBudgetRows) + ")");
    }
    if (amount > kMaxBudgetRows) {
      refuse(spelled, "too many rows (allowed: 1 to " + std::to_string(kMaxBudgetRows) + ")");
    }
    return {Budget::Unit::kRows, amount};
  }
  if (unit == "%") {
    if (amount > 100) {
      refuse(spelled, "a percentage cannot exceed 100%");
    }
    return {Budget::Unit::kPercent, amount};
  }
  const auto byte_unit = std::find_if(kByteUnits.begin(), kByteUnits.end(),
                                      [&](const ByteUnit& each) { return each.name == unit; });
  if (byte_unit == kByteUnits.end()) {
    refuse(spelled, "unknown unit '" + std::string(unit) +
                        "' (allowed: none for rows, %, KiB, MiB, GiB, KB, MB, GB)");
  }
  const double bytes = std::round(amount * byte_unit->bytes);
  if (bytes < 1 || !(bytes <= kMaxBytes)) {
    refuse(spelled, "must be 1 to " + number_text(kMaxBytes) + " bytes");
  }
  return {Budget::Unit::kBytes, bytes};
}

int default_n_recent(int budget_rows) {
  return budget_rows / 4;
}

std::string protection_problem(int budget_rows, int n_sink, int n_recent, int64_t n_in_spans) {
  const int last = n_recent < 0 ? default_n_recent(budget_rows) : n_recent;
  if (n_sink + n_in_spans + last < budget_rows) {
    return {};
  }
  const std::string others =
      n_in_spans > 0 ? ", " + std::to_string(n_in_spans) + " protected rows of the prompt" : "";
  const std::string sizes = "n_sink " + std::to_string(n_sink) + others + " and n_recent " +
                            std::to_string(last) +
                            (n_recent < 0 ? " (a quarter of the budget)" : "");
  return sizes + " leave nothing to choose in a budget of " + std::to_string(budget_rows) +
         " rows (at least " + std::to_string(smallest_budget(n_sink + n_in_spans, n_recent)) +
         " are needed, or a smaller n_sink" + (n_recent < 0 ? ")" : " or n_recent)");
}

int resolve_budget(const Budget& budget, const BudgetContext& context) {
  WINNOW_CHECK(budget.unit != Budget::Unit::kUnlimited);
  const int64_t n_in_spans = n_held({.n_sink = context.n_sink, .spans = context.spans});
  double rows = 0;
  switch (budget.unit) {
    case Budget::Unit::kUnlimited:
      break;
    case Budget::Unit::kRows:
      rows = budget.amount;
      break;
    case Budget::Unit::kPercent:
      rows = static_cast<double>(
          round_up(budget.amount * static_cast<double>(context.n_document) / 100) +
          context.n_extra);
      // Question and template come on top, protected or not; spans of the document do not.
      rows = std::max(
          rows, static_cast<double>(smallest_budget(
                    context.n_sink + std::min(n_in_spans, context.n_extra), context.n_recent)));
      break;
    case Budget::Unit::kBytes:
      rows = rows_from_bytes(budget, context);
      break;
  }
  const int budget_rows = static_cast<int>(std::min<double>(rows, kMaxBudgetRows));
  const std::string problem =
      protection_problem(budget_rows, context.n_sink, context.n_recent, n_in_spans);
  if (!problem.empty()) {
    refuse(budget.to_string(), problem);
  }
  return budget_rows;
}

}  // namespace winnow::policy
