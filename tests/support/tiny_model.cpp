#include "support/tiny_model.h"

#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <vector>

#include "ggml-cpp.h"
#include "gguf.h"

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

std::string to_utf8(int code_point) {
  if (code_point < 0x80) {
    return {static_cast<char>(code_point)};
  }
  return {static_cast<char>(0xc0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3f))};
}

// The characters that stand for the 256 bytes in GPT-2's vocabularies.
std::vector<std::string> byte_characters() {
  std::vector<std::string> characters;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    characters.push_back(to_utf8(is_itself ? byte : next++));
  }
  return characters;
}

struct VocabularyData {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
  std::vector<float> scores;
};

constexpr int32_t kNormal = 1;
constexpr int32_t kUnknown = 2;
constexpr int32_t kControl = 3;
constexpr int32_t kByte = 6;

VocabularyData byte_level_vocabulary() {
  VocabularyData v;
  v.tokens = byte_characters();
  const char* const pairs[][2] = {
      {"t", "h"},   {"th", "e"},   {"Ġ", "the"}, {"i", "n"},  {"a", "n"},  {"an", "d"},
      {"Ġ", "and"}, {"e", "r"},    {"o", "n"},   {"r", "e"},  {"Ġ", "a"},  {"Ġ", "s"},
      {"o", "u"},   {"in", "g"},   {"Ġ", "o"},   {"l", "l"},  {"e", "s"},  {"i", "s"},
      {"Ġ", "is"},  {"a", "t"},    {"e", "n"},   {"o", "r"},  {"1", "2"},  {"Ġ", "w"},
      {"Ġw", "or"}, {"Ġwor", "d"}, {"a", "l"},   {"{", "\""}, {"\"", ":"}, {"Ċ", "Ċ"},
  };
  for (const auto& [left, right] : pairs) {
    v.merges.push_back(std::string(left) + " " + right);
    v.tokens.push_back(std::string(left) + right);
  }
  v.types.assign(v.tokens.size(), kNormal);
  for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    v.tokens.emplace_back(special);
    v.types.push_back(kControl);
  }
  return v;
}

VocabularyData sentencepiece_vocabulary() {
  VocabularyData v;
  v.tokens = {"<unk>", "<s>", "</s>"};
  v.types = {kUnknown, kControl, kControl};
  const char hex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    v.tokens.push_back(std::string("<0x") + hex[byte / 16] + hex[byte % 16] + ">");
    v.types.push_back(kByte);
  }
  for (const char* word : {"▁",    "a",  "b",      "c",  "d",   "e",  "h",   "i",    "l",   "n",
                           "o",    "r",  "s",      "t",  "w",   "th", "the", "▁the", "▁w",  "or",
                           "▁wor", "ld", "▁world", "in", "▁in", "an", "▁a",  "and",  "▁and"}) {
    v.tokens.emplace_back(word);
    v.types.push_back(kNormal);
  }
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    v.scores.push_back(-static_cast<float>(i));
  }
  return v;
}

void set_strings(gguf_context* gguf, const char* key, const std::vector<std::string>& strings) {
  std::vector<const char*> pointers;
  for (const std::string& text : strings) {
    pointers.push_back(text.c_str());
  }
  gguf_set_arr_str(gguf, key, pointers.data(), pointers.size());
}

// Returns the number of tokens.
int write_vocabulary(gguf_context* gguf, const TinyModelOptions& options) {
  const VocabularyData v =
      options.sentencepiece ? sentencepiece_vocabulary() : byte_level_vocabulary();
  const auto n = static_cast<int>(v.tokens.size());
  gguf_set_val_str(gguf, "tokenizer.ggml.model", options.sentencepiece ? "llama" : "gpt2");
  if (!options.sentencepiece) {
    gguf_set_val_str(gguf, "tokenizer.ggml.pre", options.pre_tokenizer.c_str());
    set_strings(gguf, "tokenizer.ggml.merges", v.merges);
  } else {
    gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, v.scores.data(),
                      v.scores.size());
  }
  set_strings(gguf, "tokenizer.ggml.tokens", v.tokens);
  gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, v.types.data(),
                    v.types.size());
  const auto bos = static_cast<uint32_t>(options.sentencepiece ? 1 : n - 2);
  const auto eos = static_cast<uint32_t>(options.sentencepiece ? 2 : n - 1);
  gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", bos);
  gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", eos);
  gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", false);
  gguf_set_val_str(gguf, "tokenizer.chat_template",
                   "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
                   "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}");
  return n;
}

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
  if (options.rope_scale > 0) {
    gguf_set_val_str(gguf, (prefix + "rope.scaling.type").c_str(), options.rope_scaling.c_str());
    gguf_set_val_f32(gguf, (prefix + "rope.scaling.factor").c_str(), options.rope_scale);
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
    std::vector<float> values =
        normal(n_in * n_out, 0.0F, 1.0F / std::sqrt(static_cast<float>(n_in)));
    add(name, options_.matrix_type, n_in, n_out, values);
  }
  void vector(const std::string& name, int n, float mean, float deviation) {
    std::vector<float> values = normal(n, mean, deviation);
    add(name, GGML_TYPE_F32, n, 1, values);
  }

 private:
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
    const size_t n_bytes = ggml_row_size(type, n_in) * static_cast<size_t>(n_out);
    ggml_context_ptr ctx(ggml_init({.mem_size = n_bytes + 2 * ggml_tensor_overhead() + 256,
                                    .mem_buffer = nullptr,
                                    .no_alloc = false}));
    ggml_tensor* tensor = n_out == 1 ? ggml_new_tensor_1d(ctx.get(), type, n_in)
                                     : ggml_new_tensor_2d(ctx.get(), type, n_in, n_out);
    ggml_set_name(tensor, name.c_str());
    ggml_quantize_chunk(type, values.data(), tensor->data, 0, n_out, n_in, nullptr);
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
  const bool has_bias = options.qkv_bias || options.architecture == "qwen2";
  if (options.fused_qkv) {
    add.matrix(block + "attn_qkv.weight", options.n_embd, n_q + 2 * n_kv);
  } else {
    add.matrix(block + "attn_q.weight", options.n_embd, n_q);
    add.matrix(block + "attn_k.weight", options.n_embd, n_kv);
    add.matrix(block + "attn_v.weight", options.n_embd, n_kv);
  }
  if (has_bias && options.fused_qkv && !options.separate_biases) {
    add.vector(block + "attn_qkv.bias", n_q + 2 * n_kv, 0.0F, 0.5F);
  } else if (has_bias) {
    add.vector(block + "attn_q.bias", n_q, 0.0F, 0.5F);
    add.vector(block + "attn_k.bias", n_kv, 0.0F, 0.5F);
    add.vector(block + "attn_v.bias", n_kv, 0.0F, 0.5F);
  }
}

void add_tensors(TensorWriter& add, const TinyModelOptions& options, int n_vocab) {
  const int n_q = options.head_dim * options.n_heads;
  add.matrix("token_embd.weight", options.n_embd, n_vocab);
  add.vector("output_norm.weight", options.n_embd, 1.0F, 0.1F);
  if (!options.tied) {
    add.matrix("output.weight", options.n_embd, n_vocab);
  }
  if (options.rope_freqs) {
    add.vector("rope_freqs.weight", options.head_dim / 2, 4.0F, 0.5F);
  }
  for (int layer = 0; layer < options.n_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    add.vector(block + "attn_norm.weight", options.n_embd, 1.0F, 0.1F);
    add_projections(add, options, block);
    if (options.architecture == "qwen3") {
      add.vector(block + "attn_q_norm.weight", options.head_dim, 1.0F, 0.1F);
      add.vector(block + "attn_k_norm.weight", options.head_dim, 1.0F, 0.1F);
    }
    add.matrix(block + "attn_output.weight", n_q, options.n_embd);
    if (options.output_bias) {
      add.vector(block + "attn_output.bias", options.n_embd, 0.0F, 0.1F);
    }
    add.vector(block + "ffn_norm.weight", options.n_embd, 1.0F, 0.1F);
    add.matrix(block + "ffn_gate.weight", options.n_embd, options.n_ff);
    add.matrix(block + "ffn_up.weight", options.n_embd, options.n_ff);
    add.matrix(block + "ffn_down.weight", options.n_ff, options.n_embd);
  }
}

}  // namespace

std::string temporary_path(const std::string& name) {
  static const TemporaryFolder folder;
  return (folder.path() / name).string();
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
