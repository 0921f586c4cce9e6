#include "policy/policy.h"

#include <algorithm>
#include <climits>
#include <numeric>

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

// The slots of the rows that attention sees.
std::vector<int> visible_slots(const cache::HeadRows& rows) {
  std::vector<int> slots(static_cast<size_t>(rows.n));
  std::iota(slots.begin(), slots.end(), 0);
  if (rows.hidden != nullptr) {
    std::erase_if(slots, [&](int slot) { return rows.hidden[slot] != 0; });
  }
  return slots;
}

// One KV head of one of the layers that are cut together.
struct HeadOfLayer {
  const LayerView* layer;
  int kv_head;
  std::vector<int> visible;  // [n_visible] slots

  const cache::HeadRows& rows() const { return layer->heads[static_cast<size_t>(kv_head)]; }
};

// The best n_keep of a head's visible rows: scores [n_cached] -> slots [n_kept].
std::vector<int> choose_rows(const HeadOfLayer& head, std::span<const float> scores, int n_keep,
                             const Protection& protection) {
  std::vector<int32_t> positions;
  std::vector<float> worth;
  positions.reserve(head.visible.size());
  worth.reserve(head.visible.size());
  for (const int slot : head.visible) {
    positions.push_back(head.rows().positions[slot]);
    worth.push_back(scores[static_cast<size_t>(slot)]);
  }
  std::vector<int> kept = select(worth, n_keep, protect(positions, protection));
  for (int& index : kept) {
    index = head.visible[static_cast<size_t>(index)];
  }
  return kept;
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

KeptSlots Policy::choose(std::span<const LayerView> layers, kernels::ParallelFor& parallel) const {
  if (is_unlimited()) {
    return {};
  }
  std::vector<HeadOfLayer> heads;  // [n_layers * n_kv_heads]
  for (const LayerView& layer : layers) {
    for (int kv_head = 0; kv_head < std::ssize(layer.heads); ++kv_head) {
      heads.push_back({&layer, kv_head, visible_slots(layer.heads[static_cast<size_t>(kv_head)])});
    }
  }
  const int n_heads = static_cast<int>(heads.size());
  const std::vector<int> n_keep = allocate_uniform(n_heads, budget_rows());  // [n_heads]
  const bool all_have_room =
      std::equal(heads.begin(), heads.end(), n_keep.begin(),
                 [](const HeadOfLayer& head, int n) { return std::ssize(head.visible) <= n; });
  if (all_have_room) {
    return {};
  }

  const Protection protection{options_.n_sink, n_recent_};
  KeptSlots kept(heads.size());
  parallel.run(n_heads, [&](int item, int /*thread*/) {
    const size_t i = static_cast<size_t>(item);
    std::vector<float> scores(static_cast<size_t>(heads[i].rows().n));
    scorer_->score(*heads[i].layer, heads[i].kv_head, scores);
    kept[i] = choose_rows(heads[i], scores, n_keep[i], protection);
  });
  return kept;
}

}  // namespace winnow::policy
