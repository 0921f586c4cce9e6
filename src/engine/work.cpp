#include "engine/work.h"

#include <algorithm>
#include <string_view>

namespace winnow::engine {
namespace {

// Weights of the matrices of all layers.
int64_t layer_weights(const model::Model& model) {
  int64_t n = 0;
  for (const ggml_tensor* const tensor : model.file().tensors()) {
    const bool is_matrix = tensor->ne[1] > 1;
    n += is_matrix && std::string_view(tensor->name).starts_with("blk.") ? ggml_nelements(tensor)
                                                                         : 0;
  }
  return n;
}

// Rows that `n_tokens` new tokens attend to in a head of a layer, all together.
int64_t attended_rows(int64_t n_held, int64_t n_tokens, int swa_window) {
  int64_t n = 0;
  for (int64_t i = 1; i <= n_tokens; ++i) {
    n += swa_window > 0 ? std::min<int64_t>(n_held + i, swa_window) : n_held + i;
  }
  return n;
}

}  // namespace

int64_t n_params(const model::Model& model) {
  int64_t n = 0;
  for (const ggml_tensor* const tensor : model.file().tensors()) {
    n += ggml_nelements(tensor);
  }
  return n;
}

size_t tensor_bytes(const model::Model& model) {
  size_t n = 0;
  for (const ggml_tensor* const tensor : model.file().tensors()) {
    n += ggml_nbytes(tensor);
  }
  return n;
}

size_t step_weight_bytes(const model::Model& model) {
  const model::Weights& weights = model.weights();
  const size_t all = weights.mapped_bytes() + weights.expanded_bytes();
  return weights.output == weights.token_embd ? all : all - ggml_nbytes(weights.token_embd);
}

size_t attended_bytes(const cache::Cache& cache) {
  const cache::CacheShape& shape = cache.shape();
  const auto n_heads = static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads);
  return cache.now_bytes() + n_heads * shape.row_bytes();
}

double prompt_operations(const model::Model& model, const cache::Cache& cache, int n_tokens) {
  const model::Hyperparameters& hyper = model.hyper();
  int64_t rows = 0;  // of all query heads
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < hyper.n_kv_heads; ++kv_head) {
      rows += hyper.gqa_group_size() *
              attended_rows(cache.n_cached(layer, kv_head), n_tokens, hyper.swa_window(layer));
    }
  }
  return 2.0 * static_cast<double>(layer_weights(model)) * n_tokens +
         4.0 * hyper.head_dim * static_cast<double>(rows) + 2.0 * hyper.n_embd * hyper.n_vocab;
}

}  // namespace winnow::engine
