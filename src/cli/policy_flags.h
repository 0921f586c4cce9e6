// The policy that a spec and a budget flag name together.
#pragma once

#include <string>

#include "engine/plan.h"
#include "policy/policy.h"

namespace winnow::cli {

// What `auto` goes by.
struct Regime {
  engine::EvictWhen evict = engine::EvictWhen::kAfterPrompt;
  bool has_question = true;    // about the document; else it is to go on
  bool is_structured = false;  // the user says that the document has roles
};

// The spec with the positions of --legacy-offset. Throws invalid_argument where it has others.
std::string with_stalled_positions(const std::string& spec);

// Before anything is read: throws invalid_argument where caches under the policy are not saved (Session::save).
void check_can_be_saved(const policy::Policy& policy);

// Both texts may be empty: without a spec the method is `auto` where there is a budget, else full. `auto` is the method that
// did best in what was measured (docs/experiments/evaluation.md) in such a regime. Throws invalid_argument where the
// spec and `budget` both give one, or what Policy::parse throws.
policy::Policy make_policy(const std::string& spec, const std::string& budget,
                           const Regime& regime);

}  // namespace winnow::cli
