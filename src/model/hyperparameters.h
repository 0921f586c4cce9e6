// The numbers of a model that its file states.
#pragma once

#include <string>
#include <vector>

namespace winnow::model {

// How positions rotate q and k: what ggml_rope_ext takes.
struct Rope {
  int mode = 0;   // ggml's: 0 rotates neighbouring pairs, 2 (NeoX) halves
  int n_rot = 0;  // leading dimensions of a head that rotate
  float freq_base = 10000.0F;
  float freq_scale = 1.0F;   // 1 / scaling factor
  float ext_factor = 0.0F;   // 1: yarn, which leaves fast rotations as they are; 0: all are scaled
  float attn_factor = 1.0F;  // q and k are multiplied with it, beside yarn's own magnitude
  int n_ctx_orig = 0;        // the context length before scaling
};

struct Hyperparameters {
  std::string architecture;  // general.architecture
  int n_layers = 0;
  int n_embd = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;  // length of q, k and v of one head
  int n_ff = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;  // the context length the model was trained for
  float rms_epsilon = 0.0F;
  Rope rope;
  float query_scale = 0.0F;      // q·k is multiplied with it
  float embedding_scale = 1.0F;  // embeddings are multiplied with it
  float logit_softcap = 0.0F;    // logits become cap * tanh(logits / cap); 0: as they are

  std::vector<int>
      swa_windows;  // [n_layers]: a query sees so many positions, its own included; 0: all
  Rope rope_swa;    // of the layers that have a window

  int swa_window(int layer) const { return swa_windows[static_cast<size_t>(layer)]; }
  const Rope& rope_of(int layer) const { return swa_window(layer) > 0 ? rope_swa : rope; }

  int gqa_group_size() const { return n_heads / n_kv_heads; }
};

}  // namespace winnow::model
