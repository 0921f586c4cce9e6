#include "policy/schedule.h"

namespace winnow::policy {

bool is_due(const Policy& policy, int n_cached) {
  return !policy.is_unlimited() && n_cached - policy.options().slack > policy.budget_rows();
}

}  // namespace winnow::policy
