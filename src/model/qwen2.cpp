// The qwen2 family (Qwen2, Qwen2.5 and their coders): pre-norm, biased q, k and v, rotary halves, gated SiLU.

#include "model/families.h"
#include "model/graph_parts.h"

namespace winnow::model {
namespace {

Projections before_attention(const GraphBuilder& build, int layer, ggml_tensor* x) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];

  ggml_tensor* normed = rms_norm(build, x, w.attn_norm);  // [n_embd, n_tokens]
  const Projections heads = project_heads(build, w, normed);
  return {
      .q = rotate(build, heads.q, build.hyper.rope, nullptr),  // [head_dim, n_heads, n_tokens]
      .k = rotate(build, heads.k, build.hyper.rope, nullptr),  // [head_dim, n_kv_heads, n_tokens]
      .v = heads.v,                                            // [head_dim, n_kv_heads, n_tokens]
  };
}

}  // namespace

const Family kQwen2 = {
    .architecture = "qwen2",
    .help = "Qwen2, Qwen2.5",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .has_qkv_bias = true,
    .before_attention = before_attention,
    .after_attention = after_attention_pre_norm,
};

}  // namespace winnow::model
