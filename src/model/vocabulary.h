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

// Where a piece of text stands that is tokenized on its own. SentencePiece vocabularies put a space before
// the first word of a text; byte-level vocabularies do not tell the two apart.
enum class TextStart {
  kNew,        // at the start, or right after a special token
  kContinues,  // after other text, which already ended in a token
};

class Vocabulary {
 public:
  // `file` has passed check_vocabulary. Throws bad_data when libllama refuses it, with its reason.
  explicit Vocabulary(const GgufFile& file);
  ~Vocabulary();
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  // No beginning-of-text token is added. Text that is not UTF-8 throws bad_data with the offset. Words that
  // a file marks as user-defined (not as control) are one token even in plain text, as their authors mean.
  // Characters that a vocabulary cannot spell are left out, with a warning that counts them.
  std::vector<Token> tokenize(std::string_view text, SpecialText special,
                              TextStart start = TextStart::kNew) const;
  // The bytes of one token; special tokens give nothing unless `render_special`. A SentencePiece piece keeps
  // its leading space, also at the start of a text.
  std::string piece(Token token, bool render_special = false) const;

  int n_tokens() const;
  bool ends_generation(Token token) const;
  bool adds_bos() const;  // whether the file asks for a beginning-of-text token
  Token bos() const;      // -1 when there is none

  // The chat template stored in the file; empty when there is none.
  std::string chat_template() const;
  const llama_vocab* raw() const;

 private:
  std::vector<Token> tokenize_raw(std::string_view text, bool parse_special) const;
  std::vector<Token> tokenize_continued(std::string_view text, bool parse_special) const;
  void warn_about_lost_bytes(std::string_view text, const std::vector<Token>& tokens) const;

  llama_model* model_ = nullptr;
  std::string path_;
  bool is_sentencepiece_ = false;
};

}  // namespace winnow::model
