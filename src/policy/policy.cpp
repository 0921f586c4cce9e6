#include "policy/policy.h"

#include <algorithm>
#include <climits>
#include <iterator>

#include "base/error.h"
#include "base/nearest_name.h"
#include "policy/allocators.h"
#include "policy/mergers.h"
#include "policy/methods.h"
#include "policy/readers.h"
#include "policy/spec.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

// Rows: an eviction moves rows into other pages, whose bounds are then found again.
constexpr int kPageSlack = 64;

// What stands behind the method of a spec.
struct Parts {
  std::vector<const TransformPart*> transforms;  // in order
  std::vector<const AllocatorPart*> allocators;  // those of layers first
  const MergerPart* merger = nullptr;
  const ReaderPart* reader = nullptr;
};

bool is_method(std::string_view name) {
  return std::ranges::find(kMethods, name, &Method::name) != std::end(kMethods);
}

// The method of a spec, or null and a problem.
const Method* method_of(const Spec& spec, OptionReader& reader) {
  std::string kind;
  if (find_transform(spec.method) != nullptr) {
    kind = "a transform";
  } else if (find_allocator(spec.method) != nullptr) {
    kind = "an allocator";
  } else if (find_merger(spec.method) != nullptr) {
    kind = "a merger";
  } else if (find_reader(spec.method) != nullptr && !is_method(spec.method)) {
    kind = "a reader";
  }
  if (!kind.empty()) {
    reader.add_problem("'" + spec.method + "' is " + kind + " and stands after a method, as in " +
                       (kind == "a transform" || kind == "a reader" ? "snapkv+" : "knorm+") +
                       spec.method);
    return nullptr;
  }
  try {
    return &find_method(spec.method);
  } catch (const Error& error) {
    reader.add_problem(error.what());
    return nullptr;
  }
}

std::string unknown_part(std::string_view name) {
  if (is_method(name)) {
    return "'" + std::string(name) + "' is a method: a policy has one, and it comes first";
  }
  std::vector<std::string_view> names;
  std::ranges::transform(kTransforms, std::back_inserter(names), &TransformPart::name);
  std::ranges::transform(kAllocators, std::back_inserter(names), &AllocatorPart::name);
  std::ranges::transform(kMergers, std::back_inserter(names), &MergerPart::name);
  std::ranges::transform(kReaders, std::back_inserter(names), &ReaderPart::name);
  return unknown_name("transform, allocator, merger or reader", name, names);
}

// Adds problems where two parts decide the same.
void add_allocator(const AllocatorPart& part, Parts& parts, OptionReader& reader) {
  for (const AllocatorPart* other : parts.allocators) {
    if (other == &part && part.make_rows != nullptr) {
      reader.add_problem("'" + std::string(part.name) + "' is given twice");
      continue;
    }
    const bool is_twice = other->divides_heads && part.divides_heads;
    if (is_twice || (other->divides_layers && part.divides_layers)) {
      reader.add_problem("'" + std::string(other->name) + "' and '" + std::string(part.name) +
                         "' both divide the " +
                         (is_twice ? "rows of a layer over its heads" : "budget over the layers"));
    }
  }
  parts.allocators.push_back(&part);
}

// Adds a problem where the rows have been chosen by the one before, so that no score is compared any more.
void add_transform(const TransformPart& part, Parts& parts, OptionReader& reader) {
  if (!parts.transforms.empty() && parts.transforms.back()->make_second_stage != nullptr) {
    const std::string before(parts.transforms.back()->name);
    reader.add_problem("'" + before + "' chooses rows, so '" + std::string(part.name) +
                       "' cannot come after it" +
                       (part.make_normalizer != nullptr
                            ? " (before it: " + std::string(part.name) + "+" + before + ")"
                            : ", which does so too"));
  }
  parts.transforms.push_back(&part);
}

// Whether some part divides the budget over layers or heads.
bool is_divided(const Parts& parts) {
  return std::ranges::any_of(parts.allocators, [](const AllocatorPart* part) {
    return part->divides_layers || part->divides_heads;
  });
}

// Of a method that may be unknown.
Parts parts_of(const Spec& spec, const Method* method, OptionReader& reader) {
  Parts parts;
  for (const std::string& name : spec.parts) {
    if (const TransformPart* const transform = find_transform(name)) {
      add_transform(*transform, parts, reader);
    } else if (const AllocatorPart* const allocator = find_allocator(name)) {
      add_allocator(*allocator, parts, reader);
    } else if (const MergerPart* const merger = find_merger(name)) {
      if (parts.merger != nullptr) {
        reader.add_problem("'" + std::string(parts.merger->name) + "' and '" + name +
                           "' both decide what becomes of the rows that go");
      }
      parts.merger = merger;
    } else if (const ReaderPart* const part = find_reader(name)) {
      if (parts.reader != nullptr) {
        reader.add_problem(parts.reader == part
                               ? "'" + name + "' is given twice"
                               : "'" + std::string(parts.reader->name) + "' and '" + name +
                                     "' both decide which rows are read");
      }
      parts.reader = part;
    } else {
      reader.add_problem(unknown_part(name));
    }
  }
  if (method != nullptr && !is_divided(parts)) {
    parts.allocators.push_back(find_allocator(method->allocator));
  }
  std::ranges::stable_sort(parts.allocators, {},
                           [](const AllocatorPart* part) { return part->make_layers == nullptr; });
  return parts;
}

// `full` keeps everything, so an option that could not do anything is a misunderstanding.
void refuse_all_options(const Spec& spec, std::string_view default_budget, OptionReader& reader) {
  for (const std::string& part : spec.parts) {
    reader.add_problem("full keeps every row, so there is nothing for '" + part + "' to do");
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

// Those of a text as a spec has them.
std::vector<GivenOption> give_options(std::string_view options, OptionReader& reader) {
  const Spec spec = parse_spec(":" + std::string(options));
  for (const GivenOption& option : spec.options) {
    reader.give_default(option.name, option.value);
  }
  return spec.options;
}

void give_preset(const std::string& preset, const Method* method, OptionReader& reader) {
  const auto give = [&](std::initializer_list<GivenOption> options) {
    for (const GivenOption& option : options) {
      reader.give_default(option.name, option.value);
    }
  };
  if (preset == "paper") {
    give({{"n_recent", "0"}});
  } else if (preset == "seed") {
    give_options(method == nullptr ? "" : method->seed, reader);
    give({{"budget", "512"}, {"n_sink", "4"}, {"n_recent", "0"}});
  } else if (preset == "authors") {
    give({{"budget", "128"}, {"n_sink", "0"}, {"n_recent", "64"}});
  }
}

// Options that parts give where the user does not. Returns them all.
std::vector<GivenOption> give_implied(const Parts& parts, OptionReader& reader) {
  std::vector<GivenOption> implied;
  const auto give = [&](const auto* part) {
    const std::vector<GivenOption> given = give_options(part->implied, reader);
    implied.insert(implied.end(), given.begin(), given.end());
  };
  std::ranges::for_each(parts.transforms, give);
  std::ranges::for_each(parts.allocators, give);
  return implied;
}

// The options of a method as another implementation calls them: qfilters_budget=512 is budget=512.
void spell_as_ours(Spec& spec) {
  const std::string prefix = spec.method.substr(0, spec.method.find('@')) + "_";
  for (GivenOption& option : spec.options) {
    if (!option.name.starts_with(prefix)) {
      continue;
    }
    std::string name = option.name.substr(prefix.size());
    name = name == "recent" || name == "grace" ? "n_recent" : name;
    if (std::ranges::count(spec.options, name, &GivenOption::name) > 0) {
      spec.problems.push_back("'" + option.name + "' gives '" + name + "' a second time");
    }
    option.name = name;
    if (name == "sign" && option.value == "+1") {
      option.value = "1";
    }
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

// "knorm+rank+adakv"; what the method has where nothing is named goes without saying.
std::string parts_text(const Method& method, const Parts& parts) {
  std::string text(method.name);
  for (const TransformPart* const part : parts.transforms) {
    text += "+" + std::string(part->name);
  }
  for (const AllocatorPart* const part : parts.allocators) {
    const bool is_alone = std::ranges::count_if(parts.allocators, [](const AllocatorPart* other) {
                            return other->divides_layers || other->divides_heads;
                          }) == 1;
    if (part->name != (is_alone ? method.allocator : std::string_view("uniform"))) {
      text += "+" + std::string(part->name);
    }
  }
  if (parts.merger != nullptr) {
    text += "+" + std::string(parts.merger->name);
  }
  return parts.reader == nullptr ? text : text + "+" + std::string(parts.reader->name);
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
  Spec spec = parse_spec(text);
  spell_as_ours(spec);
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
  give_preset(read_options<PresetOptions>(reader).preset, policy.method_, reader);
  const Parts parts = parts_of(spec, policy.method_, reader);
  const std::vector<GivenOption> implied = give_implied(parts, reader);
  const size_t n_presets = reader.options().size();  // what they set is spelled out instead
  policy.options_ = read_options<PolicyOptions>(reader);
  if (policy.method_ != nullptr) {
    policy.scorer_ = policy.method_->make(reader);
    policy.make_transforms(parts.transforms, reader);
    policy.make_allocators(parts.allocators, reader);
    if (parts.merger != nullptr) {
      policy.merger_ = parts.merger->make(reader);
    }
    policy.let_method_choose(reader);
    if (parts.reader != nullptr) {
      policy.page_rule_ = parts.reader->make(reader);
    }
    reader.refuse_unknown();
    check_together(policy.options_, reader);
  }
  if (policy.scorer_ != nullptr && policy.is_contiguous() &&
      policy.scorer_->needs().key_sample.n_keys > 0) {
    reader.add_problem(
        "positions=contiguous turns keys as attention reads them, and the direction is of keys as "
        "they are stored; it takes positions=original");
  }
  if (policy.changes_keys()) {
    policy.check_changed_keys(parts.merger->name, reader);
  }
  if (policy.is_contiguous() && policy.page_rule_.is_wanted()) {
    reader.add_problem(
        "positions=contiguous turns keys as attention reads them, and the bounds of '" +
        std::string(parts.reader->name) +
        "' are of keys as they are stored; it takes positions=original");
  }
  if (policy.scorer_ != nullptr && policy.options_.positions != "original" &&
      policy.scorer_->needs().replay.is_wanted()) {
    reader.add_problem("positions=" + policy.options_.positions +
                       " has the model read a document's replay at other places than the "
                       "document; it takes positions=original");
  }
  if (policy.scorer_ != nullptr && policy.options_.positions != "original" &&
      policy.scorer_->needs().chunk_attention.is_wanted()) {
    reader.add_problem("positions=" + policy.options_.positions +
                       " rotates the tokens of a chunk to other places than their distance where "
                       "rows go in between; it takes positions=original");
  }
  if (policy.second_stage_ != nullptr && policy.second_stage_->asks_scorer()) {
    policy.check_scored_again(reader);
  }
  if (policy.scorer_ != nullptr && policy.options_.positions == "stalled" &&
      policy.scorer_->needs().unturned_keys) {
    reader.add_problem(
        "positions=stalled leaves no trace of where a key was rotated to, and it is turned back; "
        "it takes positions=original or contiguous");
  }
  throw_problems(text, reader.problems());

  policy.spec_ = format_spec(parts_text(*policy.method_, parts),
                             std::span(reader.options()).subspan(n_presets), implied);
  if (policy.options_.budget.unit == Budget::Unit::kRows) {
    policy.resolve({});
  }
  return policy;
}

Policy Policy::full(const Needs& watched) {
  Policy policy = parse("full");
  policy.watched_ = watched;
  return policy;
}

void Policy::make_transforms(std::span<const TransformPart* const> parts, OptionReader& reader) {
  for (const TransformPart* const part : parts) {
    if (part->make_normalizer != nullptr) {
      normalizers_.push_back(part->make_normalizer(reader));
    } else {
      second_stage_ = part->make_second_stage(reader);
    }
  }
  if (second_stage_ != nullptr && second_stage_->needs_non_negative_scores() &&
      normalizers_.empty() && scorer_->may_be_negative()) {
    const std::string method(method_->name);
    const std::string stage(parts.back()->name);
    reader.add_problem("'" + stage + "' multiplies scores, and those of " + method +
                       " may be negative: put rank or softmax before it, as in " + method +
                       "+rank+" + stage);
  }
}

// Where the method chooses a head's rows itself, no other part can.
void Policy::let_method_choose(OptionReader& reader) {
  const SecondStage* const chooser = scorer_->chooser();
  if (chooser == nullptr) {
    return;
  }
  const std::string alone =
      std::string(method_->name) + " lets rows go one by one as others come, ";
  if (second_stage_ != nullptr || !normalizers_.empty()) {
    reader.add_problem(alone + "so no transform can follow, nor can roles divide its rows");
  }
  if (chooser->folds_values() && merger_ != nullptr) {
    reader.add_problem(alone + "and merges them itself: no merger can follow");
  }
  if (options_.positions == "contiguous") {
    reader.add_problem(alone + "and compares keys as they are stored; it takes positions=original");
  }
  second_stage_ = std::shared_ptr<const SecondStage>(scorer_, chooser);
}

void Policy::make_allocators(std::span<const AllocatorPart* const> parts, OptionReader& reader) {
  for (const AllocatorPart* const part : parts) {
    if (part->make_layers != nullptr) {
      layers_ = part->make_layers(reader);
    }
    if (part->make_heads != nullptr) {
      heads_ = part->make_heads(reader);
    }
    if (part->make_rows != nullptr) {
      if (second_stage_ != nullptr) {
        reader.add_problem("'" + std::string(part->name) +
                           "' chooses a head's rows, and a transform before it does so too");
      }
      second_stage_ = part->make_rows(reader);
    }
    if (part->make_both != nullptr) {
      LayersAndHeads both = part->make_both(reader);
      layers_ = std::move(both.layers);
      heads_ = std::move(both.heads);
    }
  }
  if (heads_ == nullptr) {
    heads_ = make_uniform(reader);
  }
}

void Policy::check_scored_again(OptionReader& reader) const {
  if (!normalizers_.empty()) {
    reader.add_problem(
        "blockwise asks the method for scores again and again, so a transform before it would have "
        "no part");
  }
  if (is_contiguous()) {
    reader.add_problem(
        "positions=contiguous moves keys as rows go, and blockwise scores rows as if some had "
        "gone; "
        "it takes positions=original");
  }
  if (scorer_->looks_at_layer()) {
    reader.add_problem(
        "blockwise scores the rows of a head as if some had gone, and this method looks at those "
        "of "
        "all heads of the layer (tova: per_layer=false)");
  }
}

void Policy::check_changed_keys(std::string_view merger, OptionReader& reader) const {
  const std::string change = std::string(merger) + " has channels of keys be 0, ";
  if (is_contiguous()) {
    reader.add_problem(change +
                       "which positions=contiguous would turn into others; it takes "
                       "positions=original");
  }
  if (page_rule_.is_wanted()) {
    reader.add_problem(change + "of which the bounds of pages know nothing: no reader can follow");
  }
}

Needs Policy::needs() const {
  if (is_unlimited()) {
    return watched_;
  }
  Needs needs = scorer_->needs();
  if (second_stage_ != nullptr) {
    needs.add(second_stage_->needs());
    needs.asks_window_only &= !second_stage_->asks_scorer();
  }
  if (layers_ != nullptr) {
    needs.add(layers_->needs());
  }
  if (merger_ != nullptr) {
    needs.add(merger_->needs());
  }
  if (needs.key_projections && is_contiguous()) {  // keys move to other places: nothing is static
    needs.key_projections = false;
    needs.keys = true;
  }
  return needs;
}

const kernels::ScoreDirections* Policy::score_directions() const {
  return needs().key_projections ? scorer_->score_directions() : nullptr;
}

std::vector<std::array<int, 2>> Policy::guarded_heads() const {
  const kernels::ScoreDirections* const directions =
      scorer_ == nullptr ? nullptr : scorer_->score_directions();
  std::vector<std::array<int, 2>> heads;
  for (size_t i = 0; directions != nullptr && i < directions->has_direction.size(); ++i) {
    if (directions->has_direction[i] == 0) {
      const int head = static_cast<int>(i);
      heads.push_back({head / directions->n_kv_heads, head % directions->n_kv_heads});
    }
  }
  return heads;
}

const Filters* Policy::filters() const {
  return scorer_ == nullptr ? nullptr : scorer_->filters();
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
  const int64_t n_in_spans = n_held({.n_sink = context.n_sink, .spans = context.spans});
  slack_ = options_.slack;
  if (slack_ < 0) {
    slack_ = std::min(std::max(method_->slack, page_rule_.is_wanted() ? kPageSlack : 0),
                      budget_rows_ / 8);
    if (options_.budget.unit == Budget::Unit::kBytes) {
      const bool has_room =
          protection_problem(budget_rows_ - slack_, options_.n_sink, options_.n_recent, n_in_spans)
              .empty();
      slack_ = has_room ? slack_ : 0;
      budget_rows_ -= slack_;
    }
  }
  // Rows that have to wait until they can be scored need room.
  slack_ = std::max(slack_, scorer_->needs().key_sample.n_keys - budget_rows_);
  n_recent_ = options_.n_recent < 0 ? default_n_recent(budget_rows_) : options_.n_recent;
  extra_rows_ = options_.budget.unit == Budget::Unit::kPercent ? context.n_extra : 0;
  spans_ = std::move(context.spans);
  if (needs().roles) {
    if (context.roles.empty() && context.n_document > 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          "policy '" + spec_ +
              "' needs to know what the tokens are there for (roles), and here nothing does: only "
              "text that is read as a prompt has roles, and cases with an array of them");
    }
    roles_ = std::make_shared<const std::vector<roles::Role>>(std::move(context.roles));
  }
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
  return !is_unlimited() &&
         (scorer_->needs().replay.is_wanted() || heads_->sharing() == Sharing::kAll ||
          (layers_ != nullptr && layers_->measures()));
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

int64_t Policy::most_held_rows(int n_layers, int n_kv_heads) const {
  const int64_t most_kept = most_rows(n_layers, n_kv_heads);
  return most_kept + most_kept / budget_rows() * slack_;
}

int Policy::n_least() const {
  return options_.n_sink + n_recent_ + static_cast<int>(n_held(protection())) + 1;
}

int Policy::slack() const {
  WINNOW_CHECK(is_resolved());
  return slack_;
}

int Policy::n_recent() const {
  WINNOW_CHECK(is_resolved());
  return n_recent_;
}

}  // namespace winnow::policy
