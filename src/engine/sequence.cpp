#include "engine/sequence.h"

namespace winnow::engine {

cache::CacheShape cache_shape(int n_layers, int n_kv_heads, int head_dim, cache::RowType key_type,
                              cache::RowType value_type, const policy::Policy& policy,
                              int max_rows) {
  return {.n_layers = n_layers,
          .n_kv_heads = n_kv_heads,
          .head_dim = head_dim,
          .key_type = key_type,
          .value_type = value_type,
          .max_rows = max_rows,
          .stores_scores = policy.needs().key_norms};
}

}  // namespace winnow::engine
