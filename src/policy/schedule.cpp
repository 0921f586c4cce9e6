#include "policy/schedule.h"

#include <algorithm>

namespace winnow::policy {
namespace {

int64_t average(int64_t rows, int64_t n_heads) {
  return n_heads == 0 ? 0 : (rows + n_heads - 1) / n_heads;
}

}  // namespace

int64_t rows_per_head(const Policy& policy, const RowsHeld& held) {
  switch (policy.sharing()) {
    case Sharing::kNone:
      break;
    case Sharing::kLayer:
      return average(held.largest_layer, held.n_kv_heads);
    case Sharing::kAll:
      return average(held.all, int64_t{held.n_layers} * held.n_kv_heads);
  }
  return held.longest_head;
}

bool is_due(const Policy& policy, int64_t rows_per_head) {
  return !policy.is_unlimited() && rows_per_head - policy.slack() > policy.budget_rows();
}

}  // namespace winnow::policy
