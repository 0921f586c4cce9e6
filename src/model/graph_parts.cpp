#include "model/graph_parts.h"

#include "base/error.h"

namespace winnow::model {
namespace {

// x [head_dim * n, n_tokens] -> [head_dim, n, n_tokens].
ggml_tensor* split_heads(const GraphBuilder& build, ggml_tensor* x, int n_heads) {
  return ggml_reshape_3d(build.ctx, x, build.hyper.head_dim, n_heads, x->ne[1]);
}

// Heads [first, first + n) of x [head_dim * n_all, n_tokens] -> a view [head_dim, n, n_tokens].
ggml_tensor* view_heads(const GraphBuilder& build, ggml_tensor* x, int first, int n) {
  const size_t head_bytes = ggml_row_size(x->type, build.hyper.head_dim);
  return ggml_view_3d(build.ctx, x, build.hyper.head_dim, n, x->ne[1], head_bytes, x->nb[1],
                      static_cast<size_t>(first) * head_bytes);
}

Projections project_heads_at_once(const GraphBuilder& build, const LayerWeights& w,
                                  ggml_tensor* x) {
  const int n_heads = build.hyper.n_heads;
  const int n_kv_heads = build.hyper.n_kv_heads;
  ggml_tensor* bias = w.bqkv;  // [head_dim * (n_heads + 2 * n_kv_heads)]
  if (bias == nullptr && w.bq != nullptr) {
    bias = ggml_concat(build.ctx, ggml_concat(build.ctx, w.bq, w.bk, 0), w.bv, 0);
  }
  ggml_tensor* qkv = linear(build, w.wqkv, bias, x);
  ggml_tensor* v = view_heads(build, qkv, n_heads + n_kv_heads, n_kv_heads);
  return {.q = view_heads(build, qkv, 0, n_heads),
          .k = view_heads(build, qkv, n_heads, n_kv_heads),
          .v = ggml_cont(build.ctx, v)};  // goes to the cache as it is, which wants no gaps
}

}  // namespace

ggml_tensor* rms_norm(const GraphBuilder& build, ggml_tensor* x, ggml_tensor* weight) {
  return ggml_mul(build.ctx, ggml_rms_norm(build.ctx, x, build.hyper.rms_epsilon), weight);
}

ggml_tensor* linear(const GraphBuilder& build, ggml_tensor* weight, ggml_tensor* bias,
                    ggml_tensor* x) {
  ggml_tensor* y = ggml_mul_mat(build.ctx, weight, x);
  return bias == nullptr ? y : ggml_add(build.ctx, y, bias);
}

Projections project_heads(const GraphBuilder& build, const LayerWeights& w, ggml_tensor* x) {
  if (build.attention_input != nullptr) {
    *build.attention_input = x;
  }
  if (w.wqkv != nullptr) {
    return project_heads_at_once(build, w, x);
  }
  const Hyperparameters& hyper = build.hyper;
  return {.q = split_heads(build, linear(build, w.wq, w.bq, x), hyper.n_heads),
          .k = split_heads(build, linear(build, w.wk, w.bk, x), hyper.n_kv_heads),
          .v = split_heads(build, linear(build, w.wv, w.bv, x), hyper.n_kv_heads)};
}

ggml_tensor* rotate(const GraphBuilder& build, ggml_tensor* x, const Rope& rope,
                    ggml_tensor* freq_factors) {
  return ggml_rope_ext(build.ctx, x, build.positions, freq_factors, rope.n_rot, rope.mode,
                       rope.n_ctx_orig, rope.freq_base, rope.freq_scale, rope.ext_factor,
                       rope.attn_factor, rope.beta_fast, rope.beta_slow);
}

ggml_tensor* frequency_factors(const GraphBuilder& build) {
  return build.weights.rope_factors(is_long_context(build.hyper.rope, build.n_ctx));
}

ggml_tensor* gated_ffn(const GraphBuilder& build, const LayerWeights& layer, ggml_tensor* x,
                       Gate gate) {
  ggml_context* const ctx = build.ctx;
  ggml_tensor* up = linear(build, layer.ffn_up, nullptr, x);  // [n_ff, n_tokens]
  ggml_tensor* hidden = nullptr;                              // [n_ff, n_tokens]
  if (layer.ffn_gate == nullptr) {
    WINNOW_CHECK(gate == Gate::kSilu);
    hidden = ggml_swiglu(ctx, up);  // from [2 * n_ff, n_tokens], gate first
  } else {
    ggml_tensor* gated = linear(build, layer.ffn_gate, nullptr, x);  // [n_ff, n_tokens]
    hidden =
        gate == Gate::kSilu ? ggml_swiglu_split(ctx, gated, up) : ggml_geglu_split(ctx, gated, up);
  }
  return linear(build, layer.ffn_down, nullptr, hidden);  // [n_embd, n_tokens]
}

ggml_tensor* after_residual(const GraphBuilder& build, ggml_tensor* x) {
  if (build.attended_residual != nullptr) {
    *build.attended_residual = x;
  }
  return x;
}

ggml_tensor* after_attention_pre_norm(const GraphBuilder& build, int layer, ggml_tensor* x,
                                      ggml_tensor* attended) {
  const LayerWeights& w = build.weights.layers[static_cast<size_t>(layer)];

  ggml_tensor* projected = linear(build, w.wo, w.bo, attended);  // [n_embd, n_tokens]
  x = after_residual(build, ggml_add(build.ctx, projected, x));
  ggml_tensor* ffn = gated_ffn(build, w, rms_norm(build, x, w.ffn_norm));
  return ggml_add(build.ctx, ffn, x);  // [n_embd, n_tokens]
}

}  // namespace winnow::model
