// The gemma3 family (Gemma 3): norms before and after both halves of a layer, every head of q and k normed before it
// rotates, gated GELU. Most layers see a sliding window and rotate with a base of their own; every sixth sees
// everything.

#include "model/families.h"
#include "model/graph_parts.h"

namespace winnow::model {
namespace {

Projections before_attention(const GraphBuilder& build, int layer, ggml_tensor* x) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];
  const Rope& rope = build.hyper.rope_of(layer);

  ggml_tensor* normed = rms_norm(build, x, w.attn_norm);  // [n_embd, n_tokens]
  const Projections heads = project_heads(build, w, normed);
  ggml_tensor* q = rms_norm(build, heads.q, w.attn_q_norm);  // each head by itself
  ggml_tensor* k = rms_norm(build, heads.k, w.attn_k_norm);
  q = rotate(build, q, rope, nullptr);
  return {
      .q = ggml_scale(build.ctx, q, build.hyper.query_scale),  // [head_dim, n_heads, n_tokens]
      .k = rotate(build, k, rope, nullptr),                    // [head_dim, n_kv_heads, n_tokens]
      .v = heads.v,                                            // [head_dim, n_kv_heads, n_tokens]
  };
}

ggml_tensor* after_attention(const GraphBuilder& build, int layer, ggml_tensor* x,
                             ggml_tensor* attended) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];

  ggml_tensor* projected = linear(build, w.wo, nullptr, attended);  // [n_embd, n_tokens]
  x = after_residual(build, ggml_add(build.ctx, rms_norm(build, projected, w.attn_post_norm), x));
  ggml_tensor* ffn = gated_ffn(build, w, rms_norm(build, x, w.ffn_norm), Gate::kGelu);
  return ggml_add(build.ctx, rms_norm(build, ffn, w.ffn_post_norm), x);  // [n_embd, n_tokens]
}

}  // namespace

const Family kGemma3 = {
    .architecture = "gemma3",
    .help = "Gemma 3",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .has_qk_norm = true,
    .has_post_norms = true,
    .has_windows = true,
    .scales_embeddings = true,
    .has_logit_softcap = true,
    .scales_queries = true,
    .n_layers_scaled_by_embd = 62,  // the 27B model
    .before_attention = before_attention,
    .after_attention = after_attention,
};

}  // namespace winnow::model
