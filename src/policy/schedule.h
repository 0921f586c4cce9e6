// The last of a policy's answers: when are heads cut back to their share?
#pragma once

#include "policy/policy.h"

namespace winnow::policy {

// While decoding: whether a head with so many rows has used up its budget and the slack on top of it.
bool is_due(const Policy& policy, int n_cached);

}  // namespace winnow::policy
