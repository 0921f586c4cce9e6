#include "support/tiny_model.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <vector>

#include "ggml-cpp.h"
#include "gguf.h"
#include "support/tiny_vocabulary.h"

namespace winnow::test {
namespace {

class TemporaryFolder {
 public:
  TemporaryFolder() : owner_(::getpid()) {
    std::string pattern = (std::filesystem::temp_directory_path() / "winnow-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) {
      throw std::runtime_error("cannot create " + pattern);
    }
    path_ = pattern;
  }
  ~TemporaryFolder() {
    if (::getpid() == owner_) {  // not in a forked child
      std::error_code ignored;
      std::filesystem::remove_all(path_, ignored);
    }
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  pid_t owner_;
  std::filesystem::path path_;
};

void write_hyperparameters(gguf_context* gguf, const TinyModelOptions& options) {
  const std::string prefix = options.architecture + ".";
  const auto set = [&](const char* name, int value) {
    gguf_set_val_u32(gguf, (prefix + name).c_str(), static_cast<uint32_t>(value));
  };
  gguf_set_val_str(gguf, "general.architecture", options.architecture.c_str());
  set("block_count", options.n_layers);
  set("context_length", options.n_ctx_train);
  set("embedding_length", options.n_embd);
  set("feed_forward_length", options.n_ff);
  set("attention.head_count", options.n_heads);
  set("attention.head_count_kv", options.n_kv_heads);
  if (options.head_dim * options.n_heads != options.n_embd) {
    set("attention.key_length", options.head_dim);
    set("attention.value_length", options.head_dim);
  }
  gguf_set_val_f32(gguf, (prefix + "attention.layer_norm_rms_epsilon").c_str(), 1e-5F);
  gguf_set_val_f32(gguf, (prefix + "rope.freq_base").c_str(), 20000.0F);
  if (options.n_rot > 0) {
    set("rope.dimension_count", options.n_rot);
  }
  if (options.rope_scale > 0 || options.rope_scaling != "linear") {
    gguf_set_val_str(gguf, (prefix + "rope.scaling.type").c_str(), options.rope_scaling.c_str());
  }
  if (options.rope_scale > 0) {
    gguf_set_val_f32(gguf, (prefix + "rope.scaling.factor").c_str(), options.rope_scale);
  }
  if (options.swa_window > 0) {
    set("attention.sliding_window", options.swa_window);
  }
  if (options.swa_pattern > 0) {
    set("attention.sliding_window_pattern", options.swa_pattern);
  }
  if (options.logit_softcap > 0) {
    gguf_set_val_f32(gguf, (prefix + "final_logit_softcapping").c_str(), options.logit_softcap);
  }
  if (options.rope_attn_factor > 0) {
    gguf_set_val_f32(gguf, (prefix + "rope.scaling.attn_factor").c_str(), options.rope_attn_factor);
  }
  if (options.n_ctx_orig > 0) {
    set("rope.scaling.original_context_length", options.n_ctx_orig);
  }
}

// Adds random tensors to a file; sizes of values are chosen so that activations stay near 1 in every layer.
class TensorWriter {
 public:
  TensorWriter(gguf_context* gguf, const TinyModelOptions& options)
      : gguf_(gguf), options_(options), random_(options.seed) {}

  void matrix(const std::string& name, int n_in, int n_out) {
    matrix(name, n_in, n_out, options_.matrix_type);
  }
  void embedding(const std::string& name, int n_in, int n_out) {
    matrix(name, n_in, n_out, options_.embedding_type.value_or(options_.matrix_type));
  }
  void vector(const std::string& name, int n, float mean, float deviation) {
    std::vector<float> values = normal(n, mean, deviation);
    add(name, GGML_TYPE_F32, n, 1, values);
  }

 private:
  void matrix(const std::string& name, int n_in, int n_out, ggml_type type) {
    std::vector<float> values =
        normal(n_in * n_out, 0.0F, 1.0F / std::sqrt(static_cast<float>(n_in)));
    add(name, type, n_in, n_out, values);
  }

  // Box-Muller over raw generator output: std::normal_distribution differs between libraries.
  std::vector<float> normal(int n, float mean, float deviation) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      const double u = (static_cast<double>(random_() >> 11) + 1.0) / 9007199254740993.0;
      const double angle = static_cast<double>(random_() >> 11) / 9007199254740992.0 * 2 * M_PI;
      value = mean + deviation * static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(angle));
    }
    return values;
  }

  void add(const std::string& name, ggml_type type, int n_in, int n_out,
           const std::vector<float>& values) {
    const TensorPlan sound{
        name, type, n_out == 1 ? std::vector<int64_t>{n_in} : std::vector<int64_t>{n_in, n_out}};
    TensorPlan plan = sound;
    if (options_.edit_tensor && !options_.edit_tensor(plan)) {
      return;
    }
    size_t n_bytes = ggml_row_size(plan.type, plan.ne[0]);
    for (size_t d = 1; d < plan.ne.size(); ++d) {
      n_bytes *= static_cast<size_t>(plan.ne[d]);
    }
    ggml_context_ptr ctx(ggml_init({.mem_size = n_bytes + 2 * ggml_tensor_overhead() + 256,
                                    .mem_buffer = nullptr,
                                    .no_alloc = false}));
    ggml_tensor* tensor =
        ggml_new_tensor(ctx.get(), plan.type, static_cast<int>(plan.ne.size()), plan.ne.data());
    ggml_set_name(tensor, plan.name.c_str());
    if (plan.type == sound.type && plan.ne == sound.ne) {
      ggml_quantize_chunk(type, values.data(), tensor->data, 0, n_out, n_in, nullptr);
    } else {
      std::memset(tensor->data, 0, n_bytes);
    }
    gguf_add_tensor(gguf_, tensor);
    contexts_.push_back(std::move(ctx));
  }

  gguf_context* gguf_;
  const TinyModelOptions& options_;
  std::mt19937_64 random_;
  std::vector<ggml_context_ptr> contexts_;  // the data must live until the file is written
};

void add_projections(TensorWriter& add, const TinyModelOptions& options, const std::string& block) {
  const int n_q = options.head_dim * options.n_heads;
  const int n_kv = options.head_dim * options.n_kv_heads;
  const bool is_fused = options.fused_qkv || options.architecture == "phi3";
  const bool has_bias = options.qkv_bias || options.architecture == "qwen2";
  if (is_fused) {
    add.matrix(block + "attn_qkv.weight", options.n_embd, n_q + 2 * n_kv);
  } else {
    add.matrix(block + "attn_q.weight", options.n_embd, n_q);
    add.matrix(block + "attn_k.weight", options.n_embd, n_kv);
    add.matrix(block + "attn_v.weight", options.n_embd, n_kv);
  }
  if (has_bias && is_fused && !options.separate_biases) {
    add.vector(block + "attn_qkv.bias", n_q + 2 * n_kv, 0.0F, 0.5F);
  } else if (has_bias) {
    add.vector(block + "attn_q.bias", n_q, 0.0F, 0.5F);
    add.vector(block + "attn_k.bias", n_kv, 0.0F, 0.5F);
    add.vector(block + "attn_v.bias", n_kv, 0.0F, 0.5F);
  }
}

void add_tensors(TensorWriter& add, const TinyModelOptions& options, int n_vocab) {
  const int n_q = options.head_dim * options.n_heads;
  add.embedding("token_embd.weight", options.n_embd, n_vocab);
  add.vector("output_norm.weight", options.n_embd, 1.0F, 0.1F);
  if (!options.tied) {
    add.embedding("output.weight", options.n_embd, n_vocab);
  }
  if (options.rope_freqs) {
    add.vector("rope_freqs.weight", options.head_dim / 2, 4.0F, 0.5F);
  }
  if (options.context_factors) {
    const int n_pairs = (options.n_rot > 0 ? options.n_rot : options.head_dim) / 2;
    add.vector("rope_factors_long.weight", n_pairs, 6.0F, 1.0F);
    add.vector("rope_factors_short.weight", n_pairs, 1.2F, 0.1F);
  }
  for (int layer = 0; layer < options.n_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    add.vector(block + "attn_norm.weight", options.n_embd, 1.0F, 0.1F);
    add_projections(add, options, block);
    if (options.architecture == "qwen3" || options.architecture == "gemma3") {
      add.vector(block + "attn_q_norm.weight", options.head_dim, 1.0F, 0.1F);
      add.vector(block + "attn_k_norm.weight", options.head_dim, 1.0F, 0.1F);
    }
    add.matrix(block + "attn_output.weight", n_q, options.n_embd);
    if (options.output_bias) {
      add.vector(block + "attn_output.bias", options.n_embd, 0.0F, 0.1F);
    }
    if (options.architecture == "gemma3") {
      add.vector(block + "post_attention_norm.weight", options.n_embd, 1.0F, 0.1F);
      add.vector(block + "post_ffw_norm.weight", options.n_embd, 1.0F, 0.1F);
    }
    add.vector(block + "ffn_norm.weight", options.n_embd, 1.0F, 0.1F);
    if (options.architecture == "phi3") {
      add.matrix(block + "ffn_up.weight", options.n_embd, 2 * options.n_ff);
    } else {
      add.matrix(block + "ffn_gate.weight", options.n_embd, options.n_ff);
      add.matrix(block + "ffn_up.weight", options.n_embd, options.n_ff);
    }
    add.matrix(block + "ffn_down.weight", options.n_ff, options.n_embd);
  }
}

}  // namespace

std::string temporary_path(const std::string& name) {
  static const TemporaryFolder folder;
  return (folder.path() / name).string();
}

TinyModelOptions windowed_model() {
  return {.architecture = "gemma3", .n_layers = 7, .head_dim = 32, .swa_window = kTinyWindow};
}

TinyModelOptions smallest_model(const std::string& architecture, ggml_type matrix_type) {
  TinyModelOptions options{.architecture = architecture,
                           .n_layers = 1,
                           .n_embd = 32,
                           .n_heads = 2,
                           .n_kv_heads = 1,
                           .n_ff = 32};
  options.matrix_type = matrix_type;
  return options;
}

std::string write_tiny_model(const TinyModelOptions& options) {
  static std::atomic<int> n_written = 0;
  gguf_context_ptr gguf(gguf_init_empty());
  write_hyperparameters(gguf.get(), options);
  const int n_vocab = write_vocabulary(gguf.get(), options);
  TensorWriter writer(gguf.get(), options);
  add_tensors(writer, options, n_vocab);
  if (options.edit) {
    options.edit(gguf.get());
  }
  std::string path = temporary_path("tiny-" + std::to_string(n_written++) + ".gguf");
  if (!gguf_write_to_file(gguf.get(), path.c_str(), /*only_meta=*/false)) {
    throw std::runtime_error("cannot write " + path);
  }
  return path;
}

}  // namespace winnow::test
