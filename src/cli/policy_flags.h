// The policy that a spec and a budget flag name together.
#pragma once

#include <string>

#include "engine/plan.h"
#include "policy/policy.h"

namespace winnow::cli {

// Both may be empty: without a spec the method is knorm where there is a budget, else full. Throws invalid_argument
// where the spec and `budget` both give one, or what Policy::parse throws.
policy::Policy make_policy(const std::string& spec, const std::string& budget);

// The same, where the method may be `auto`: the one that did best in what was measured (docs/experiments/evaluation.md) when
// the document is cut before the question is known, or after it.
policy::Policy make_policy(const std::string& spec, const std::string& budget,
                           engine::EvictWhen evict);

}  // namespace winnow::cli
