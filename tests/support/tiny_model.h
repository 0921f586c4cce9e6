// Writes a tiny random model as a GGUF file: every family, in milliseconds, without a download.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ggml.h"

struct gguf_context;

namespace winnow::test {

// A tensor about to be written.
struct TensorPlan {
  std::string name;
  ggml_type type;
  std::vector<int64_t> ne;
};

struct TinyModelOptions {
  std::string architecture = "llama";
  int n_layers = 2;
  int n_embd = 64;
  int n_heads = 4;
  int n_kv_heads = 2;
  int head_dim = 16;  // written as key_length and value_length when it is not n_embd / n_heads
  int n_ff = 96;
  int n_ctx_train = 4096;
  bool tied = true;        // no output.weight
  bool qkv_bias = false;   // always written for qwen2
  bool fused_qkv = false;  // one attn_qkv instead of attn_q, attn_k and attn_v; always for phi3
  bool separate_biases = false;  // the biases stay three even so
  bool output_bias = false;
  bool rope_freqs = false;              // factors as Llama 3.1 has them
  float rope_scale = 0.0F;              // the scaling factor; 0: no key for it
  std::string rope_scaling = "linear";  // its type
  float rope_attn_factor = 0.0F;        // 0: no key for it
  int n_rot = 0;                        // dimensions that rotate; 0: no key for it
  bool context_factors = false;  // rotation factors for long and short contexts, as Phi-3 has them
  int n_ctx_orig = 0;            // the context length before scaling; 0: no key for it
  int swa_window = 0;            // the sliding attention window; 0: no key for it
  int swa_pattern = 0;           // of so many layers the last sees everything; 0: no key for it
  float logit_softcap = 0.0F;    // 0: no key for it
  ggml_type matrix_type = GGML_TYPE_F32;
  std::optional<ggml_type> embedding_type = {};  // of token_embd and output, where it is another
  std::string pre_tokenizer = "gpt-2";
  bool sentencepiece = false;  // a "llama" vocabulary instead of byte-level BPE
  uint64_t seed = 1;
  // These make files that must be refused. One changes keys right before the file is written; the other changes a tensor,
  // whose values are then zeros, or leaves it out by returning false.
  std::function<void(gguf_context*)> edit = {};
  std::function<bool(TensorPlan&)> edit_tensor = {};
};

// A gemma3 model of seven layers: six see a window of kTinyWindow positions, one sees everything.
inline constexpr int kTinyWindow = 40;
TinyModelOptions windowed_model();

// One layer, and everything else as small as can be.
TinyModelOptions smallest_model(const std::string& architecture, ggml_type matrix_type);

// Returns the path of the file, in a temporary folder that is removed when the process ends. The same
// options give the same bytes.
std::string write_tiny_model(const TinyModelOptions& options = {});

// A path for a file in the same folder.
std::string temporary_path(const std::string& name);

}  // namespace winnow::test
