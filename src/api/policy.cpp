#include "winnow/policy.h"

#include "policy/policy.h"

namespace winnow {

Policy Policy::parse(std::string_view spec, std::string_view default_budget) {
  Policy policy;
  policy.spec_ = policy::Policy::parse(spec, default_budget).spec();
  return policy;
}

}  // namespace winnow
