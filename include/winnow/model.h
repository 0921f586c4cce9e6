// A model that sessions run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "winnow/error.h"

namespace winnow {

namespace model {
class Model;
}

using Token = std::int32_t;

struct ModelOptions {
  // What matrices are multiplied as: "file", as the file stores them, or expanded at load: "f16", "bf16", "f32". With
  // "prompt-f16", "prompt-bf16" and "prompt-f32" the layers' matrices are expanded for reading prompts, which is often much
  // faster, while generated tokens take the file's, which are fewer bytes. There is no "auto" here: the program chooses
  // by its prompt, which a model that is loaded does not know.
  std::string weights = "file";
  int n_threads = -1;  // for expanding; 1 to 512, or -1: as many as the machine reports
};

// What a model's file states, and what loading took.
struct ModelInfo {
  std::string family;  // "llama", "qwen2", …
  int n_layers = 0;
  int n_embd = 0;
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int n_vocab = 0;
  int n_ctx_train = 0;  // positions that the model was trained for
  bool has_chat_template = false;
  std::size_t mapped_bytes = 0;    // weights that are read from the file in place
  std::size_t expanded_bytes = 0;  // weights that were expanded in memory
};

// A handle: copies are the same model, which lives as long as one of them or a session does. It never changes, so any
// number of threads may use it at the same time. One that was moved from may be destroyed or assigned to, and no more.
class Model {
 public:
  // Loads a GGUF file. It stays mapped: it must not be cut off or overwritten while the model lives.
  // Throws not_found or io (the file), unsupported (family, version), bad_data (damaged, contradicts itself),
  // invalid_argument (options), resource_exhausted (memory for expanded weights).
  explicit Model(const std::string& path, const ModelOptions& options = {});

  ModelInfo info() const;

  // The tokens of a text that stands alone, without a beginning-of-text token. Special tokens in it are plain text.
  // Throws bad_data for text that is not UTF-8.
  std::vector<Token> tokenize(std::string_view text) const;
  // The bytes of tokens; special tokens have none. A token may end inside a character. Throws invalid_argument for a
  // token that is not in the vocabulary.
  std::string text_of(std::span<const Token> tokens) const;

 private:
  friend class Session;
  std::shared_ptr<const model::Model> impl_;
};

}  // namespace winnow
