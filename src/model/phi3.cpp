// The phi3 family (Phi-3, Phi-3.5, Phi-4-mini): pre-norm, one matrix for q, k and v and one for the feed-forward's gate
// and up, rotary halves of the first n_rot dimensions. Long-context files bring two sets of rotation factors, one for
// sessions within the original context and one for longer ones. Their sliding attention window is not applied: libllama
// has it switched off, since files state it wrongly.

#include "model/families.h"
#include "model/graph_parts.h"

namespace winnow::model {
namespace {

Projections before_attention(const GraphBuilder& build, int layer, ggml_tensor* x) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];
  const Rope& rope = build.hyper.rope;
  ggml_tensor* factors = frequency_factors(build);  // [n_rot / 2], or null

  ggml_tensor* normed = rms_norm(build, x, w.attn_norm);  // [n_embd, n_tokens]
  const Projections heads = project_heads(build, w, normed);
  ggml_tensor* q = rotate(build, heads.q, rope, factors);
  return {
      .q = ggml_scale(build.ctx, q, build.hyper.query_scale),  // [head_dim, n_heads, n_tokens]
      .k = rotate(build, heads.k, rope, factors),              // [head_dim, n_kv_heads, n_tokens]
      .v = heads.v,                                            // [head_dim, n_kv_heads, n_tokens]
  };
}

}  // namespace

const Family kPhi3 = {
    .architecture = "phi3",
    .help = "Phi-3, Phi-3.5, Phi-4-mini",
    .rope_mode = GGML_ROPE_TYPE_NEOX,
    .has_context_factors = true,
    .has_partial_rotation = true,
    .has_gate_in_up = true,
    .scales_queries = true,
    .before_attention = before_attention,
    .after_attention = after_attention_pre_norm,
};

}  // namespace winnow::model
