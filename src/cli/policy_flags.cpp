#include "cli/policy_flags.h"

#include "base/error.h"
#include "base/log.h"
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

policy::Policy make_policy(const std::string& spec, const std::string& budget,
                           engine::EvictWhen evict) {
  constexpr std::string_view kAuto = "auto";
  if (policy::parse_spec(spec).method != kAuto) {
    return make_policy(spec, budget);
  }
  const std::string method = evict == engine::EvictWhen::kAfterPrompt ? "snapkv" : "keydiff";
  std::string chosen = spec;
  chosen.replace(chosen.find(kAuto), kAuto.size(), method);
  policy::Policy policy = make_policy(chosen, budget);
  log_info("policy auto, evicting " + std::string(engine::evict_when_name(evict)) + ", is " +
           policy.spec());
  return policy;
}

}  // namespace winnow::cli
