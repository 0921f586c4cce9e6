// The policy that a spec and a budget flag name together.
#pragma once

#include <string>

#include "policy/policy.h"

namespace winnow::cli {

// `budget` may be empty. Throws invalid_argument where the spec has a budget too, or what Policy::parse throws.
policy::Policy make_policy(const std::string& spec, const std::string& budget);

}  // namespace winnow::cli
