// The qwen3 family (Qwen3): pre-norm, every head of q and k normed before it rotates, rotary halves, gated SiLU.
// Heads have a length of their own: n_heads * head_dim need not be n_embd.

#include "model/families.h"
#include "model/graph_parts.h"

namespace winnow::model {
namespace {

Projections before_attention(const GraphBuilder& build, int layer, ggml_tensor* x) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];

  ggml_tensor* normed = rms_norm(build, x, w.attn_norm);  // [n_embd, n_tokens]
  const Projections heads = project_heads(build, w, normed);
  ggml_tensor* q = rms_norm(build, heads.q, w.attn_q_norm);  // each head by itself
  ggml_tensor* k = rms_norm(build, heads.k, w.attn_k_norm);
  return {
      .q = rotate(build, q, build.hyper.rope, nullptr),  // [head_dim, n_heads, n_tokens]
      .k = rotate(build, k, build.hyper.rope, nullptr),  // [head_dim, n_kv_heads, n_tokens]
      .v = heads.v,                                      // [head_dim, n_kv_heads, n_tokens]
  };
}

}  // namespace

const Family kQwen3 = {
    .architecture = "qwen3",
    .help = "Qwen3",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .has_qk_norm = true,
    .before_attention = before_attention,
    .after_attention = after_attention_pre_norm,
};

}  // namespace winnow::model
