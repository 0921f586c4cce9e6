#include "policy/policy.h"

#include <algorithm>
#include <climits>

#include "base/error.h"
#include "policy/allocators.h"
#include "policy/methods.h"
#include "policy/spec.h"

namespace winnow::policy {
namespace {

// The method of a spec, or null and a problem.
const Method* method_of(const Spec& spec, OptionReader& reader) {
  if (std::ranges::find(kAllocators, spec.method, &AllocatorPart::name) != std::end(kAllocators)) {
    reader.add_problem("'" + spec.method +
                       "' is an allocator and stands after a method, as in knorm+" + spec.method);
    return nullptr;
  }
  try {
    return &find_method(spec.method);
  } catch (const Error& error) {
    reader.add_problem(error.what());
    return nullptr;
  }
}

// The allocators of a spec, those of layers first; problems where one is unknown or two decide the same.
std::vector<const AllocatorPart*> allocators_of(const Spec& spec, OptionReader& reader) {
  std::vector<const AllocatorPart*> parts;
  for (const std::string& name : spec.allocators) {
    const AllocatorPart* part = nullptr;
    try {
      part = &find_allocator(name);
    } catch (const Error& error) {
      reader.add_problem(error.what());
      continue;
    }
    for (const AllocatorPart* other : parts) {
      const bool is_twice = other->divides_heads && part->divides_heads;
      if (is_twice || (other->divides_layers && part->divides_layers)) {
        reader.add_problem(
            "'" + std::string(other->name) + "' and '" + name + "' both divide the " +
            (is_twice ? "rows of a layer over its heads" : "budget over the layers"));
      }
    }
    parts.push_back(part);
  }
  std::ranges::stable_sort(parts, {},
                           [](const AllocatorPart* part) { return part->make_layers == nullptr; });
  return parts;
}

// `full` keeps everything, so an option that could not do anything is a misunderstanding.
void refuse_all_options(const Spec& spec, std::string_view default_budget, OptionReader& reader) {
  for (const std::string& allocator : spec.allocators) {
    reader.add_problem("full keeps every row, so there is nothing for '" + allocator +
                       "' to divide");
  }
  std::string list = default_budget.empty() ? "" : "budget=" + std::string(default_budget);
  for (const GivenOption& option : spec.options) {
    list += (list.empty() ? "" : ", ") + option.name + "=" + option.value;
  }
  if (!list.empty()) {
    reader.add_problem(
        "full keeps every row and takes neither a budget nor options (given: " + list + ")");
  }
}

// What only several options together can get wrong.
void check_together(const PolicyOptions& options, OptionReader& reader) {
  if (!reader.is_given("budget")) {
    reader.add_problem("needs a budget, for example budget=512, budget=10% or budget=64MiB");
  } else if (options.budget.unit == Budget::Unit::kRows) {
    const std::string problem = protection_problem(static_cast<int>(options.budget.amount),
                                                   options.n_sink, options.n_recent);
    if (!problem.empty()) {
      reader.add_problem(problem);
    }
  }
}

// "knorm+adakv"; uniform goes without saying.
std::string parts_text(const Method& method, std::span<const AllocatorPart* const> allocators) {
  std::string text(method.name);
  for (const AllocatorPart* const part : allocators) {
    if (part->make_heads != make_uniform) {
      text += "+" + std::string(part->name);
    }
  }
  return text;
}

void throw_problems(std::string_view spec, const std::vector<std::string>& problems) {
  if (problems.empty()) {
    return;
  }
  std::string text = "policy '" + std::string(spec) + "': ";
  for (size_t i = 0; i < problems.size(); ++i) {
    text += (i == 0 ? "" : "; ") + problems[i];
  }
  throw Error(ErrorCode::kInvalidArgument, text);
}

}  // namespace

std::vector<OptionDescription> describe_policy_options() {
  OptionReader reader;
  read_options<PresetOptions>(reader);
  read_options<PolicyOptions>(reader);
  return reader.descriptions();
}

Policy Policy::parse(std::string_view text, std::string_view default_budget) {
  const Spec spec = parse_spec(text);
  OptionReader reader(spec.options);
  for (const std::string& problem : spec.problems) {
    reader.add_problem(problem);
  }
  Policy policy;
  policy.method_ = method_of(spec, reader);

  if (policy.method_ != nullptr && policy.method_->make == nullptr) {
    refuse_all_options(spec, default_budget, reader);
    throw_problems(text, reader.problems());
    policy.spec_ = policy.method_->name;
    policy.budget_rows_ = INT_MAX;
    return policy;
  }

  if (!default_budget.empty()) {
    reader.give_default("budget", default_budget);
  }
  if (read_options<PresetOptions>(reader).preset == "paper") {
    reader.give_default("n_recent", "0");
  }
  const size_t n_presets = reader.options().size();  // what they set is spelled out instead
  policy.options_ = read_options<PolicyOptions>(reader);
  const std::vector<const AllocatorPart*> allocators = allocators_of(spec, reader);
  if (policy.method_ != nullptr) {
    policy.scorer_ = policy.method_->make(reader);
    policy.make_allocators(allocators, reader);
    reader.refuse_unknown();
    check_together(policy.options_, reader);
  }
  throw_problems(text, reader.problems());

  policy.spec_ = format_spec(parts_text(*policy.method_, allocators),
                             std::span(reader.options()).subspan(n_presets));
  if (policy.options_.budget.unit == Budget::Unit::kRows) {
    policy.resolve({});
  }
  return policy;
}

void Policy::make_allocators(std::span<const AllocatorPart* const> parts, OptionReader& reader) {
  for (const AllocatorPart* const part : parts) {
    if (part->make_layers != nullptr) {
      layers_ = part->make_layers(reader);
    }
    if (part->make_heads != nullptr) {
      heads_ = part->make_heads(reader);
    }
  }
  if (heads_ == nullptr) {
    heads_ = make_uniform(reader);
  }
}

Needs Policy::needs() const {
  return is_unlimited() ? Needs{} : scorer_->needs();
}

bool Policy::is_unlimited() const {
  return scorer_ == nullptr;
}

void Policy::resolve(BudgetContext context) {
  if (is_unlimited()) {
    return;
  }
  context.n_sink = options_.n_sink;
  context.n_recent = options_.n_recent;
  budget_rows_ = resolve_budget(options_.budget, context);
  n_recent_ = options_.n_recent < 0 ? default_n_recent(budget_rows_) : options_.n_recent;
  spans_ = std::move(context.spans);
}

bool Policy::protects_question() const {
  return options_.protect == "question" || options_.protect == "both";
}

bool Policy::protects_template() const {
  return options_.protect == "template" || options_.protect == "both";
}

Protection Policy::protection() const {
  return {.n_sink = options_.n_sink, .n_recent = n_recent_, .spans = spans_};
}

int Policy::budget_rows() const {
  WINNOW_CHECK(is_resolved());
  return budget_rows_;
}

Sharing Policy::sharing() const {
  if (is_unlimited()) {
    return Sharing::kNone;
  }
  return layers_ != nullptr ? Sharing::kAll : heads_->sharing();
}

bool Policy::needs_all_layers() const {
  return !is_unlimited() && heads_->sharing() == Sharing::kAll;
}

int64_t Policy::most_rows(int n_layers, int n_kv_heads) const {
  const int64_t rows = budget_rows();
  switch (sharing()) {
    case Sharing::kNone:
      break;
    case Sharing::kLayer:
      return rows * n_kv_heads;
    case Sharing::kAll:
      return rows * n_kv_heads * n_layers;
  }
  return rows;
}

int Policy::n_least() const {
  return options_.n_sink + n_recent_ + static_cast<int>(n_positions(protection())) + 1;
}

int Policy::n_recent() const {
  WINNOW_CHECK(is_resolved());
  return n_recent_;
}

}  // namespace winnow::policy
