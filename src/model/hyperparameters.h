// The numbers of a model that its file states.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "model/rope.h"

namespace winnow::model {

struct Hyperparameters {
  std::string architecture;  // general.architecture
  int n_layers = 0;
  int n_embd = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;  // length of q, k and v of one head
  int n_ff = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;   // the context length the model was trained for
  int n_ctx_scaled = 0;  // the same once rope scaling by option has changed it
  float rms_epsilon = 0.0F;
  Rope rope;
  float query_scale = 0.0F;      // q·k is multiplied with it
  float embedding_scale = 1.0F;  // embeddings are multiplied with it
  float logit_softcap = 0.0F;    // logits become cap * tanh(logits / cap); 0: as they are

  std::vector<int> swa_windows;  // [n_layers]: positions a query sees, its own included; 0: all
  Rope rope_swa;                 // of the layers that have a window

  int swa_window(int layer) const { return swa_windows[static_cast<size_t>(layer)]; }
  bool has_windows() const {
    return std::ranges::any_of(swa_windows, [](int swa_window) { return swa_window > 0; });
  }
  const Rope& rope_of(int layer) const { return swa_window(layer) > 0 ? rope_swa : rope; }

  int gqa_group_size() const { return n_heads / n_kv_heads; }
};

}  // namespace winnow::model
