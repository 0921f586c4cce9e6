#include "eval/arm.h"

#include <algorithm>

#include "base/error.h"
#include "base/name_table.h"
#include "policy/spec.h"

namespace winnow::eval {
namespace {

constexpr NameTable<QuestionMode, 5> kQuestionModes{"question mode",
                                                    {{QuestionMode::kNone, "none"},
                                                     {QuestionMode::kAgnostic, "agnostic"},
                                                     {QuestionMode::kAware, "aware"},
                                                     {QuestionMode::kPerChunk, "per-chunk"},
                                                     {QuestionMode::kLegacyOrder, "legacy-order"}}};

}  // namespace

const char* question_mode_name(QuestionMode mode) {
  return kQuestionModes.name(mode);
}

std::vector<QuestionMode> parse_question_modes(std::string_view name) {
  if (name == "both") {
    return {QuestionMode::kAgnostic, QuestionMode::kAware};
  }
  for (const QuestionMode mode : {QuestionMode::kAgnostic, QuestionMode::kAware,
                                  QuestionMode::kPerChunk, QuestionMode::kLegacyOrder}) {
    if (name == question_mode_name(mode)) {
      return {mode};
    }
  }
  throw Error(ErrorCode::kInvalidArgument,
              "unknown question mode '" + std::string(name) +
                  "' (allowed: agnostic, aware, both, per-chunk, legacy-order)");
}

std::vector<policy::Policy> make_policies(std::span<const std::string> specs,
                                          std::span<const std::string> budgets) {
  std::vector<policy::Policy> policies{policy::Policy::full()};
  const auto add = [&policies](policy::Policy policy) {
    const bool is_new = std::ranges::none_of(
        policies, [&](const policy::Policy& other) { return other.spec() == policy.spec(); });
    if (is_new) {
      policies.push_back(std::move(policy));
    }
  };
  for (const std::string& spec : specs) {
    if (spec == "full") {
      continue;
    }
    if (budgets.empty() || policy::has_option(spec, "budget")) {
      add(policy::Policy::parse(spec));
      continue;
    }
    for (const std::string& budget : budgets) {
      add(policy::Policy::parse(spec, budget));
    }
  }
  return policies;
}

std::vector<Arm> make_arms(std::span<const policy::Policy> policies,
                           std::span<const QuestionMode> modes) {
  std::vector<Arm> arms;
  for (const policy::Policy& policy : policies) {
    if (policy.is_unlimited()) {
      arms.push_back({.policy = policy});
    }
  }
  for (const QuestionMode mode : modes) {
    for (const policy::Policy& policy : policies) {
      if (!policy.is_unlimited()) {
        arms.push_back({.policy = policy, .question = mode});
      }
    }
  }
  return arms;
}

policy::Needs needs_of(std::span<const Arm> arms) {
  policy::Needs needs;
  for (const Arm& arm : arms) {
    needs.add(arm.policy.needs());
  }
  return needs;
}

}  // namespace winnow::eval
