#include "model/graph_parts.h"

namespace winnow::model {

ggml_tensor* rms_norm(const GraphBuilder& build, ggml_tensor* x, ggml_tensor* weight) {
  return ggml_mul(build.ctx, ggml_rms_norm(build.ctx, x, build.hyper.rms_epsilon), weight);
}

ggml_tensor* linear(const GraphBuilder& build, ggml_tensor* weight, ggml_tensor* bias,
                    ggml_tensor* x) {
  ggml_tensor* y = ggml_mul_mat(build.ctx, weight, x);
  return bias == nullptr ? y : ggml_add(build.ctx, y, bias);
}

ggml_tensor* split_heads(const GraphBuilder& build, ggml_tensor* x, int n_heads) {
  return ggml_reshape_3d(build.ctx, x, build.hyper.head_dim, n_heads, x->ne[1]);
}

ggml_tensor* rotate(const GraphBuilder& build, ggml_tensor* x, ggml_tensor* freq_factors) {
  const Hyperparameters& hyper = build.hyper;
  // The last four turn yarn off.
  return ggml_rope_ext(build.ctx, x, build.positions, freq_factors, hyper.n_rot, hyper.rope_mode,
                       hyper.n_ctx_train, hyper.rope_freq_base, hyper.rope_freq_scale,
                       /*ext_factor=*/0.0F, /*attn_factor=*/1.0F, /*beta_fast=*/32.0F,
                       /*beta_slow=*/1.0F);
}

ggml_tensor* gated_ffn(const GraphBuilder& build, const LayerWeights& layer, ggml_tensor* x) {
  ggml_tensor* up = linear(build, layer.ffn_up, nullptr, x);      // [n_ff, n_tokens]
  ggml_tensor* gate = linear(build, layer.ffn_gate, nullptr, x);  // [n_ff, n_tokens]
  ggml_tensor* hidden = ggml_swiglu_split(build.ctx, gate, up);   // silu(gate) * up
  return linear(build, layer.ffn_down, nullptr, hidden);          // [n_embd, n_tokens]
}

}  // namespace winnow::model
