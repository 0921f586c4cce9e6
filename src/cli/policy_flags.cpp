#include "cli/policy_flags.h"

#include <vector>

#include "base/error.h"
#include "policy/spec.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kAuto = "auto";

struct Best {
  std::string method;
  std::vector<policy::GivenOption> options = {};
};

std::string with_option(const std::string& spec, const std::string& name,
                        const std::string& value) {
  const bool has_options = spec.find(':') != std::string::npos;
  return spec + (has_options ? "," : ":") + name + "=" + value;
}

Best best_of(const Regime& regime) {
  if (regime.evict != engine::EvictWhen::kAfterPrompt) {
    return {.method = "keydiff"};
  }
  if (!regime.has_question) {
    return {.method = "expected-attention"};
  }
  const policy::GivenOption window{.name = "obs_window", .value = "16"};
  return regime.is_structured ? Best{.method = "snapkv+roles",
                                     .options = {window, {.name = "kernel", .value = "15"}}}
                              : Best{.method = "snapkv", .options = {window}};
}

// `spec` with the regime's best in place of `auto`; what the user says about an option stays.
std::string with_best(std::string spec, const Regime& regime) {
  const Best best = best_of(regime);
  spec.replace(spec.find(kAuto), kAuto.size(), best.method);
  for (const policy::GivenOption& option : best.options) {
    if (!policy::has_option(spec, option.name)) {
      spec = with_option(spec, option.name, option.value);
    }
  }
  return spec;
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

std::string with_stalled_positions(const std::string& spec) {
  if (policy::has_option(spec, "positions")) {
    throw Error(ErrorCode::kInvalidArgument,
                "'" + spec + "' has an option positions, and --legacy-offset is positions=stalled");
  }
  return with_option(spec, "positions", "stalled");
}

void check_can_be_saved(const policy::Policy& policy) {
  if (policy.is_stalled()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "policy '" + policy.spec() + "': a cache that was read at stalled positions is not saved");
  }
}

policy::Policy make_policy(const std::string& spec, const std::string& budget,
                           const Regime& regime) {
  if (spec.empty() && budget.empty()) {
    return policy::Policy::full();
  }
  std::string named = spec.empty() ? std::string(kAuto) : spec;
  refuse_two_budgets(named, budget);
  if (policy::parse_spec(named).method == kAuto) {
    named = with_best(std::move(named), regime);
  }
  return policy::Policy::parse(named, budget);
}

}  // namespace winnow::cli
