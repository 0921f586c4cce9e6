#include "support/attend.h"

#include <vector>

#include "kernels/cache_ops.h"
#include "kernels/parallel.h"

namespace winnow::test {
namespace {

// The attend node's work without a graph: every thread's share in turn.
std::vector<float> attend(const cache::Cache& cache, int layer, int n_heads,
                          const kernels::Slice& slice, std::span<const float> queries, float scale,
                          int swa_window) {
  const kernels::AttendShape shape{.n_heads = n_heads,
                                   .n_kv_heads = cache.shape().n_kv_heads,
                                   .head_dim = cache.shape().head_dim,
                                   .scale = scale};
  constexpr int kThreads = 3;
  kernels::StepContext step(shape, kThreads);
  const kernels::LayerOps ops{.step = &step, .layer = layer, .swa_window = swa_window};
  step.set_slices({&slice, 1});
  std::vector<float> q(queries.begin(), queries.end());
  std::vector<float> out(queries.size());
  ggml_tensor q_tensor{};
  q_tensor.data = q.data();
  ggml_tensor out_tensor{};
  out_tensor.data = out.data();
  out_tensor.ne[0] = static_cast<int64_t>(n_heads) * shape.head_dim;
  out_tensor.ne[1] = slice.n_tokens;
  out_tensor.nb[1] = static_cast<size_t>(out_tensor.ne[0]) * sizeof(float);
  for (int thread = 0; thread < kThreads; ++thread) {
    step.attend(ops, &q_tensor, &out_tensor, thread, kThreads);
  }
  return out;
}

}  // namespace

std::vector<float> attend_prompt_all(const cache::Cache& cache, int layer, int n_heads,
                                     int first_pos, std::span<const float> queries, float scale,
                                     int swa_window) {
  const size_t token = static_cast<size_t>(n_heads) * static_cast<size_t>(cache.shape().head_dim);
  return attend(cache, layer, n_heads,
                {.cache = const_cast<cache::Cache*>(&cache),
                 .first_token = 0,
                 .n_tokens = static_cast<int>(queries.size() / token),
                 .first_pos = first_pos,
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
                 .is_prompt = false},
                queries, scale, swa_window);
}

}  // namespace winnow::test
