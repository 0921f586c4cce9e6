// The policy that a spec and a budget flag name together.
#pragma once

#include <string>

#include "policy/policy.h"

namespace winnow::cli {

// Both may be empty: without a spec the method is knorm where there is a budget, else full. Throws invalid_argument
// where the spec and `budget` both give one, or what Policy::parse throws.
policy::Policy make_policy(const std::string& spec, const std::string& budget);

}  // namespace winnow::cli
