// Text to tokens and back, by libllama from a vocabulary-only load.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf_file.h"

struct llama_model;
struct llama_vocab;

namespace winnow::model {

using Token = int32_t;

enum class SpecialText {
  kPlain,  // "<|im_end|>" in the text is ten characters: what users write
  kParse,  // it is one token: what chat templates write
};

class Vocabulary {
 public:
  // `file` has passed check_vocabulary. Throws bad_data when libllama refuses it, with its reason.
  explicit Vocabulary(const GgufFile& file);
  ~Vocabulary();

  // No beginning-of-text token is added. Text that is not UTF-8 throws bad_data with the offset.
  std::vector<Token> tokenize(std::string_view text, SpecialText special) const;
  // The bytes of one token; special tokens give nothing unless `render_special`.
  std::string piece(Token token, bool render_special = false) const;

  int n_tokens() const;
  bool ends_generation(Token token) const;
  bool adds_bos() const;  // whether the file asks for a beginning-of-text token
  Token bos() const;      // -1 when there is none

  // The chat template stored in the file; empty when there is none.
  std::string chat_template() const;
  const llama_vocab* raw() const;

 private:
  llama_model* model_;
};

}  // namespace winnow::model
