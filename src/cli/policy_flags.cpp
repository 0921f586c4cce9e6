#include "cli/policy_flags.h"

#include "base/error.h"
#include "policy/spec.h"

namespace winnow::cli {

policy::Policy make_policy(const std::string& spec, const std::string& budget) {
  if (spec.empty()) {
    return policy::Policy::parse(budget.empty() ? "full" : "knorm", budget);
  }
  for (const policy::GivenOption& option : policy::parse_spec(spec).options) {
    if (option.name == "budget" && !budget.empty()) {
      throw Error(ErrorCode::kInvalidArgument, "the policy has budget=" + option.value +
                                                   " and --budget is " + budget +
                                                   "; give one of them");
    }
  }
  return policy::Policy::parse(spec, budget);
}

}  // namespace winnow::cli
