// The pieces that model families share. The operations and their order are libllama's, so that logits
// come out as the same bits (tests/model/libllama_test.cpp).
#pragma once

#include "model/families.h"

namespace winnow::model {

// x [n, n_tokens], weight [n] -> x / rms(x) * weight.
ggml_tensor* rms_norm(const GraphBuilder& build, ggml_tensor* x, ggml_tensor* weight);

// weight [n_in, n_out], bias [n_out] or null, x [n_in, n_tokens] -> [n_out, n_tokens].
ggml_tensor* linear(const GraphBuilder& build, ggml_tensor* weight, ggml_tensor* bias,
                    ggml_tensor* x);

// x [n_embd, n_tokens] -> q [head_dim, n_heads, n_tokens], k and v [head_dim, n_kv_heads, n_tokens], not rotated. q and
// k may be views with gaps between tokens.
Projections project_heads(const GraphBuilder& build, const LayerWeights& layer, ggml_tensor* x);

// x [head_dim, n, n_tokens]: rotates the first n_rot dimensions of every head by the tokens' positions.
// `freq_factors` [n_rot / 2] divide the frequencies; null where there are none.
ggml_tensor* rotate(const GraphBuilder& build, ggml_tensor* x, const Rope& rope,
                    ggml_tensor* freq_factors);

// What divides the frequencies [n_rot / 2] in the session's context; null where the file has none.
ggml_tensor* frequency_factors(const GraphBuilder& build);

// To be called with the residual stream [n_embd, n_tokens] once a layer's attention is part of it. Returns it.
ggml_tensor* after_residual(const GraphBuilder& build, ggml_tensor* x);

enum class Gate { kSilu, kGelu };

// x [n_embd, n_tokens] -> down(activation(gate(x)) * up(x)), [n_embd, n_tokens].
ggml_tensor* gated_ffn(const GraphBuilder& build, const LayerWeights& layer, ggml_tensor* x,
                       Gate gate = Gate::kSilu);

// What follows attention in families that norm before each half of a layer, and nowhere else: output projection and
// residual, then norm, gated SiLU and residual. x [n_embd, n_tokens], attended [head_dim * n_heads, n_tokens] ->
// [n_embd, n_tokens].
ggml_tensor* after_attention_pre_norm(const GraphBuilder& build, int layer, ggml_tensor* x,
                                      ggml_tensor* attended);

}  // namespace winnow::model
