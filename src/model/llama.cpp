// The llama family (Llama 2 and 3, Mistral, SmolLM2): pre-norm, rotary heads in neighbouring pairs, gated SiLU.
// Files of Llama 3.1 and later bring factors for the rotation frequencies; some variants bring biases.

#include "model/families.h"
#include "model/graph_parts.h"

namespace winnow::model {
namespace {

Projections before_attention(const GraphBuilder& build, int layer, ggml_tensor* x) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];
  const Hyperparameters& hyper = build.hyper;
  ggml_tensor* freq_factors = build.weights.rope_freqs;

  ggml_tensor* normed = rms_norm(build, x, w.attn_norm);  // [n_embd, n_tokens]
  ggml_tensor* q = split_heads(build, linear(build, w.wq, w.bq, normed), hyper.n_heads);
  ggml_tensor* k = split_heads(build, linear(build, w.wk, w.bk, normed), hyper.n_kv_heads);
  ggml_tensor* v = split_heads(build, linear(build, w.wv, w.bv, normed), hyper.n_kv_heads);
  return {
      .q = rotate(build, q, freq_factors),  // [head_dim, n_heads, n_tokens]
      .k = rotate(build, k, freq_factors),  // [head_dim, n_kv_heads, n_tokens]
      .v = v,                               // [head_dim, n_kv_heads, n_tokens]
  };
}

ggml_tensor* after_attention(const GraphBuilder& build, int layer, ggml_tensor* x,
                             ggml_tensor* attended) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];

  ggml_tensor* projected = linear(build, w.wo, w.bo, attended);  // [n_embd, n_tokens]
  x = ggml_add(build.ctx, projected, x);
  ggml_tensor* ffn = gated_ffn(build, w, rms_norm(build, x, w.ffn_norm));
  return ggml_add(build.ctx, ffn, x);  // [n_embd, n_tokens]
}

}  // namespace

const Family kLlama = {
    .architecture = "llama",
    .help = "Llama 2 and 3, Mistral, SmolLM2",
    .rope_mode = GGML_ROPE_TYPE_NORMAL,
    .has_qkv_bias = false,
    .has_output_bias = true,
    .has_rope_freqs = true,
    .has_qk_norm = false,
    .before_attention = before_attention,
    .after_attention = after_attention,
};

}  // namespace winnow::model
