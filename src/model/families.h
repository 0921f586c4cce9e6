// The list of model families. Adding one: a file with its graph functions, a declaration and a row here.
#pragma once

#include <span>
#include <string_view>

#include "ggml.h"
#include "model/hyperparameters.h"
#include "model/weights.h"

namespace winnow::model {

// What attention needs of one layer, rotated and ready. Layouts are ggml's, fastest first.
struct Projections {
  ggml_tensor* q;  // [head_dim, n_heads, n_tokens]
  ggml_tensor* k;  // [head_dim, n_kv_heads, n_tokens]
  ggml_tensor* v;  // [head_dim, n_kv_heads, n_tokens]
};

// What a layer's graph is built from.
struct GraphBuilder {
  ggml_context* ctx;
  const Hyperparameters& hyper;
  const Weights& weights;
  ggml_tensor* positions;  // [n_tokens] int32: the absolute position of each token
  int n_ctx;               // most positions of the session: some families rotate by it
  // The residual stream [n_embd, n_tokens] after the attention of the layer that is being built, where somebody asks for it.
  ggml_tensor** attended_residual = nullptr;
  // What that layer's queries, keys and values are projections of [n_embd, n_tokens], likewise.
  ggml_tensor** attention_input = nullptr;
};

struct Family {
  std::string_view architecture;  // general.architecture of the file
  std::string_view help;
  int rope_mode = 0;          // ggml's
  bool has_qkv_bias = false;  // q, k and v biases must be there, fused or not; otherwise they may
  bool has_output_bias = false;       // the attention's output projection may have a bias
  bool has_rope_freqs = false;        // the file may divide rotation frequencies by factors
  bool has_context_factors = false;   // two sets of such factors, chosen by the session's context
  bool has_partial_rotation = false;  // n_rot may be less than head_dim
  bool has_qk_norm = false;           // every head of q and k is normed before it rotates
  bool has_post_norms = false;  // attention and feed-forward are normed before they are added, too
  bool has_gate_in_up = false;  // ffn_up holds the feed-forward's gate and up, gate first
  // Some layers have a sliding attention window; elsewhere such a key is ignored.
  bool has_windows = false;
  bool scales_embeddings = false;  // by sqrt(n_embd)
  bool has_logit_softcap = false;  // the file may cap logits
  bool scales_queries = false;  // q comes out of before_attention multiplied with hyper.query_scale
  // Models with so many layers scale queries by n_embd / n_heads for head_dim; 0: none do.
  int n_layers_scaled_by_embd = 0;
  // x [n_embd, n_tokens]: the residual stream before the layer.
  Projections (*before_attention)(const GraphBuilder& build, int layer, ggml_tensor* x) = nullptr;
  // attended [head_dim * n_heads, n_tokens]; returns the residual stream after the layer.
  ggml_tensor* (*after_attention)(const GraphBuilder& build, int layer, ggml_tensor* x,
                                  ggml_tensor* attended) = nullptr;
};

extern const Family kLlama;
extern const Family kQwen2;
extern const Family kQwen3;
extern const Family kPhi3;
extern const Family kGemma3;

inline constexpr const Family* kFamilies[] = {&kLlama, &kQwen2, &kQwen3, &kPhi3, &kGemma3};

// Throws unsupported, with the list of what is supported.
const Family& find_family(std::string_view architecture);

// tokens [n_tokens] int32 -> [n_embd, n_tokens].
ggml_tensor* embed(const GraphBuilder& build, ggml_tensor* tokens);

// x [n_embd, n_outputs]: the residual stream after the last layer -> [n_vocab, n_outputs].
ggml_tensor* logits(const GraphBuilder& build, ggml_tensor* x);

// What attention multiplies q·k with: hyper.query_scale, or 1 where q is scaled already.
float attention_scale(const Family& family, const Hyperparameters& hyper);

}  // namespace winnow::model
