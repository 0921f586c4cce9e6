#include "cli/policy_flags.h"

#include "base/error.h"
#include "policy/spec.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kAuto = "auto";
constexpr int kLongAnswer = 512;  // tokens, from which on most rows are cut while decoding

const char* best_method(const Regime& regime) {
  if (regime.evict != engine::EvictWhen::kAfterPrompt) {
    return "keydiff";
  }
  return regime.n_predict >= kLongAnswer ? "expected-attention" : "snapkv";
}

void refuse_two_budgets(const std::string& spec, const std::string& budget) {
  for (const policy::GivenOption& option : policy::parse_spec(spec).options) {
    if (option.name == "budget" && !budget.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "the policy has budget=" + option.value +
                                                   " and --budget is " + budget +
                                                   "; give one of them");
    }
  }
}

}  // namespace

policy::Policy make_policy(const std::string& spec, const std::string& budget,
                           const Regime& regime) {
  if (spec.empty() && budget.empty()) {
    return policy::Policy::full();
  }
  std::string named = spec.empty() ? std::string(kAuto) : spec;
  refuse_two_budgets(named, budget);
  if (policy::parse_spec(named).method == kAuto) {
    named.replace(named.find(kAuto), kAuto.size(), best_method(regime));
  }
  return policy::Policy::parse(named, budget);
}

}  // namespace winnow::cli
