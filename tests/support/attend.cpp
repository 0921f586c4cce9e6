#include "support/attend.h"

#include <vector>

#include "kernels/cache_ops.h"
#include "kernels/parallel.h"

namespace winnow::test {
namespace {

std::vector<float> attend(const cache::Cache& cache, int layer, int n_heads,
                          const kernels::Slice& slice, std::span<const float> queries, float scale,
                          int swa_window) {
  constexpr int kThreads = 3;
  kernels::StepContext step({.n_heads = n_heads,
                             .n_kv_heads = cache.shape().n_kv_heads,
                             .head_dim = cache.shape().head_dim,
                             .scale = scale},
                            kThreads);
  return attend_as_node({.step = &step, .layer = layer, .swa_window = swa_window}, slice, queries,
                        kThreads);
}

}  // namespace

std::vector<float> attend_as_node(const kernels::LayerOps& ops, const kernels::Slice& slice,
                                  std::span<const float> queries, int n_threads) {
  ops.step->set_slices({&slice, 1});
  std::vector<float> q(queries.begin(), queries.end());
  std::vector<float> out(queries.size());
  ggml_tensor q_tensor{};
  q_tensor.data = q.data();
  ggml_tensor out_tensor{};
  out_tensor.data = out.data();
  out_tensor.ne[0] = std::ssize(queries) / slice.n_tokens;
  out_tensor.ne[1] = slice.n_tokens;
  out_tensor.nb[1] = static_cast<size_t>(out_tensor.ne[0]) * sizeof(float);
  for (int thread = 0; thread < n_threads; ++thread) {
    ops.step->attend(ops, &q_tensor, &out_tensor, thread, n_threads);
  }
  return out;
}

std::vector<float> attend_prompt_all(const cache::Cache& cache, int layer, int n_heads,
                                     int first_pos, std::span<const float> queries, float scale,
                                     int swa_window) {
  const size_t token = static_cast<size_t>(n_heads) * static_cast<size_t>(cache.shape().head_dim);
  return attend(cache, layer, n_heads,
                {.cache = const_cast<cache::Cache*>(&cache),
                 .first_token = 0,
                 .n_tokens = static_cast<int>(queries.size() / token),
                 .first_pos = first_pos,
                 .first_rotation = first_pos,
                 .is_prompt = true},
                queries, scale, swa_window);
}

std::vector<float> attend_decode_all(const cache::Cache& cache, int layer, int n_heads, int pos,
                                     std::span<const float> queries, float scale, int swa_window) {
  return attend(cache, layer, n_heads,
                {.cache = const_cast<cache::Cache*>(&cache),
                 .first_token = 0,
                 .n_tokens = 1,
                 .first_pos = pos,
                 .first_rotation = pos,
                 .is_prompt = false},
                queries, scale, swa_window);
}

}  // namespace winnow::test
