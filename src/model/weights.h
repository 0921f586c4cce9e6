// The tensors of a model: views into the mapped file, or expanded copies.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ggml-backend.h"
#include "ggml.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"

namespace winnow::model {

struct Family;
class TensorLookup;

// What matrices are multiplied as: as stored in the file, or expanded.
enum class WeightType { kFile, kF16, kBf16, kF32 };
const char* weight_type_name(WeightType type);

// What is expanded: all matrices, or those of the layers for prompts, beside the file's for the rest. Embedding and output
// matrix are the file's then: the one is only looked up, the other multiplies few of a prompt's rows.
struct WeightOption {
  WeightType type = WeightType::kFile;
  bool is_for_prompts = false;

  bool operator==(const WeightOption&) const = default;
};

// "file", "f16", "bf16", "f32", "prompt-f16", "prompt-bf16", "prompt-f32"; throws invalid_argument with the list, and
// in it the name of what a caller knows besides.
WeightOption parse_weight_option(std::string_view name, std::string_view caller_name = {});
const char* weight_option_name(const WeightOption& option);

struct LayerWeights {
  ggml_tensor* attn_norm = nullptr;
  ggml_tensor* wq = nullptr;  // null where wqkv is there
  ggml_tensor* wk = nullptr;
  ggml_tensor* wv = nullptr;
  ggml_tensor* bq = nullptr;  // optional biases: null when the file has none
  ggml_tensor* bk = nullptr;
  ggml_tensor* bv = nullptr;
  ggml_tensor* wqkv = nullptr;  // rows of wq, wk and wv in one matrix; null where they come apart
  ggml_tensor* bqkv = nullptr;
  ggml_tensor* attn_q_norm = nullptr;  // [head_dim], in families that norm q and k
  ggml_tensor* attn_k_norm = nullptr;
  ggml_tensor* wo = nullptr;
  ggml_tensor* bo = nullptr;
  ggml_tensor* attn_post_norm = nullptr;  // [n_embd], in families that norm after attention
  ggml_tensor* ffn_norm = nullptr;
  ggml_tensor* ffn_gate = nullptr;  // null where ffn_up holds it
  ggml_tensor* ffn_up = nullptr;
  ggml_tensor* ffn_down = nullptr;
  ggml_tensor* ffn_post_norm = nullptr;  // as attn_post_norm
};

class Weights {
 public:
  // Checks the shape and type of every tensor against `hyper`; throws bad_data or unsupported.
  // Expanding uses `n_threads` threads and `expanded_bytes()` of anonymous memory; throws resource_exhausted.
  Weights(const GgufFile& file, const Hyperparameters& hyper, const WeightOption& option,
          int n_threads);
  // Copies of all that graphs of layers and of the output read, in buffers of such a type, a device's; throws resource_exhausted.
  // token_embd is what rows are looked up in, and stays where it is.
  Weights(const Weights& weights, ggml_backend_buffer_type_t buffer_type);
  ~Weights();
  Weights(const Weights&) = delete;
  Weights& operator=(const Weights&) = delete;

  ggml_tensor* token_embd = nullptr;
  ggml_tensor* output_norm = nullptr;
  ggml_tensor* output = nullptr;              // token_embd itself where embeddings are tied
  ggml_tensor* rope_freqs = nullptr;          // [n_rot / 2], optional
  ggml_tensor* rope_factors_long = nullptr;   // the same, for sessions beyond the original context
  ggml_tensor* rope_factors_short = nullptr;  // and within it
  // What divides the rotation frequencies of such a session, or null.
  ggml_tensor* rope_factors(bool is_long_context) const {
    if (rope_freqs != nullptr) {
      return rope_freqs;
    }
    return is_long_context ? rope_factors_long : rope_factors_short;
  }
  std::vector<LayerWeights> layers;

  size_t mapped_bytes() const { return mapped_bytes_; }      // read from the file in place
  size_t expanded_bytes() const { return expanded_bytes_; }  // copies in memory
  size_t device_bytes() const;                               // that copies on a device take
  double expand_ms() const { return expand_ms_; }            // making them
  size_t n_overflows() const { return n_overflows_; }  // values that became infinite in the copies

 private:
  struct Storage;

  void find_context_factors(TensorLookup& find, const GgufFile& file, const Hyperparameters& hyper);
  void find_tensors(const GgufFile& file, const Hyperparameters& hyper, const Family& family);
  void expand(const GgufFile& file, const WeightOption& option, int n_threads);
  std::vector<ggml_tensor**> tensors();  // all that are there, but for token_embd

  std::unique_ptr<Storage> storage_;
  size_t mapped_bytes_ = 0;
  size_t expanded_bytes_ = 0;
  double expand_ms_ = 0;
  size_t n_overflows_ = 0;
};

// The matrices that would be expanded: those that have the type already stay as they are.
std::vector<const ggml_tensor*> matrices_to_expand(const GgufFile& file,
                                                   const WeightOption& option);
// What that would take.
size_t expansion_bytes(const GgufFile& file, const WeightOption& option);
// What matrices become.
ggml_type expanded_type(WeightType type);

}  // namespace winnow::model
