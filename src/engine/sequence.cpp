#include "engine/sequence.h"

namespace winnow::engine {

cache::CacheShape cache_shape(const model::Hyperparameters& hyper, cache::RowType key_type,
                              cache::RowType value_type, const policy::Policy& policy,
                              int max_rows) {
  return {.n_layers = hyper.n_layers,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .key_type = key_type,
          .value_type = value_type,
          .max_rows = max_rows,
          .stores_scores = policy.needs().key_norms,
          .swa_windows = hyper.swa_windows};
}

}  // namespace winnow::engine
