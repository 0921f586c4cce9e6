// The llama family (Llama 2 and 3, Mistral, SmolLM2): pre-norm, rotary heads in neighbouring pairs, gated SiLU.
// Files of Llama 3.1 and later bring factors for the rotation frequencies; some variants bring biases.

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
  return {
      .q = rotate(build, heads.q, rope, factors),  // [head_dim, n_heads, n_tokens]
      .k = rotate(build, heads.k, rope, factors),  // [head_dim, n_kv_heads, n_tokens]
      .v = heads.v,                                // [head_dim, n_kv_heads, n_tokens]
  };
}

}  // namespace

const Family kLlama = {
    .architecture = "llama",
    .help = "Llama 2 and 3, Mistral, SmolLM2",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .has_output_bias = true,
    .has_rope_freqs = true,
    .before_attention = before_attention,
    .after_attention = after_attention_pre_norm,
};

}  // namespace winnow::model
