#include "policy/policy.h"

#include <algorithm>
#include <climits>

#include "base/error.h"
#include "kernels/parallel.h"
#include "policy/allocators/uniform.h"
#include "policy/methods.h"
#include "policy/protect.h"
#include "policy/select.h"
#include "policy/spec.h"

namespace winnow::policy {
namespace {

// The method of a spec, or null and a problem.
const Method* method_of(const Spec& spec, OptionReader& reader) {
  if (spec.method.find('+') != std::string::npos) {
    reader.add_problem(
        "'" + spec.method + "' combines parts, but a policy is one method; its rows " +
        "are always divided by the uniform allocator, every KV head the same number");
    return nullptr;
  }
  try {
    return &find_method(spec.method);
  } catch (const Error& error) {
    reader.add_problem(error.what());
    return nullptr;
  }
}

// `full` keeps everything, so an option that could not do anything is a misunderstanding.
void refuse_all_options(const std::vector<GivenOption>& given, std::string_view default_budget,
                        OptionReader& reader) {
  std::string list = default_budget.empty() ? "" : "budget=" + std::string(default_budget);
  for (const GivenOption& option : given) {
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

// The best n_keep of a head's visible rows by scratch.scores [n_slots] -> kept [n_kept] slots.
void choose_rows(const cache::HeadRows& rows, int n_keep, const Protection& protection,
                 Choice::Scratch& scratch, std::vector<int>& kept) {
  const Protected keep_anyway = protect(rows, protection);
  if (rows.n_hidden == 0) {
    select(scratch.scores, n_keep, keep_anyway, scratch.keys, kept);
    return;
  }
  scratch.slots.resize(static_cast<size_t>(rows.n));
  const std::span<const int> visible = cache::visible_slots(rows, scratch.slots);
  for (size_t i = 0; i < visible.size(); ++i) {
    scratch.scores[i] = scratch.scores[static_cast<size_t>(visible[i])];
  }
  scratch.scores.resize(visible.size());
  select(scratch.scores, n_keep, keep_anyway, scratch.keys, kept);
  for (int& index : kept) {
    index = visible[static_cast<size_t>(index)];
  }
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
    refuse_all_options(spec.options, default_budget, reader);
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
  if (policy.method_ != nullptr) {
    policy.scorer_ = policy.method_->make(reader);
    reader.refuse_unknown();
    check_together(policy.options_, reader);
  }
  throw_problems(text, reader.problems());

  policy.spec_ = format_spec(policy.method_->name, std::span(reader.options()).subspan(n_presets));
  if (policy.options_.budget.unit == Budget::Unit::kRows) {
    policy.resolve({});
  }
  return policy;
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
}

int Policy::budget_rows() const {
  WINNOW_CHECK(is_resolved());
  return budget_rows_;
}

int Policy::n_recent() const {
  WINNOW_CHECK(is_resolved());
  return n_recent_;
}

bool Policy::choose(std::span<const LayerView> layers, kernels::ParallelFor& parallel,
                    Choice& choice) const {
  if (is_unlimited()) {
    return false;
  }
  choice.heads.clear();
  for (LayerView layer : layers) {
    layer.n_sink = options_.n_sink;
    for (int kv_head = 0; kv_head < std::ssize(layer.heads); ++kv_head) {
      choice.heads.push_back({layer, kv_head});
    }
  }
  choice.n_keep.resize(choice.heads.size());
  allocate_uniform(budget_rows(), choice.n_keep);
  const bool all_have_room =
      std::equal(choice.heads.begin(), choice.heads.end(), choice.n_keep.begin(),
                 [](const Choice::Head& head, int n) { return head.rows().n_visible() <= n; });
  if (all_have_room) {
    return false;
  }
  const Protection protection{options_.n_sink, n_recent_};
  choice.kept.resize(choice.heads.size());
  choice.threads.resize(static_cast<size_t>(parallel.n_threads()));
  parallel.run(static_cast<int>(choice.heads.size()), [&](int item, int thread) {
    const auto i = static_cast<size_t>(item);
    const Choice::Head& head = choice.heads[i];
    Choice::Scratch& scratch = choice.threads[static_cast<size_t>(thread)];
    scratch.scores.resize(static_cast<size_t>(head.rows().n));
    scorer_->score(head.layer, head.kv_head, scratch.scorer, scratch.scores);
    choose_rows(head.rows(), choice.n_keep[i], protection, scratch, choice.kept[i]);
  });
  return true;
}

}  // namespace winnow::policy
