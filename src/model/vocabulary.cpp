#include "model/vocabulary.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "llama.h"
#include "model/deep_stack.h"
#include "model/libllama.h"
#include "model/utf8.h"

namespace winnow::model {
namespace {

// Measured: 320 bytes per character (std::regex of GCC 12), in words that such a pre-tokenizer takes whole.
constexpr size_t kStackBytesPerCharacter = 1024;
constexpr size_t kShortWord = 2048;  // characters that fit on any thread's stack

}  // namespace

Vocabulary::Vocabulary(const GgufFile& file) : path_(file.path()) {
  start_libllama();
  clear_libllama_error();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.progress_callback = [](float, void*) { return true; };  // the default prints dots
  model_ = llama_model_load_from_file(path_.c_str(), params);
  if (model_ == nullptr) {
    check_libllama_memory("load the vocabulary of '" + path_ + "'");
    file.throw_damaged("libllama refuses the vocabulary: " + libllama_error());
  }
  is_sentencepiece_ = llama_vocab_type(raw()) == LLAMA_VOCAB_TYPE_SPM;
}

Vocabulary::~Vocabulary() {
  llama_model_free(model_);
}

std::vector<Token> Vocabulary::tokenize_raw(std::string_view text, bool parse_special) const {
  const auto n_bytes = static_cast<int32_t>(text.size());
  std::vector<Token> tokens(text.size() / 3 + 16);
  const auto run = [&] {
    return llama_tokenize(raw(), text.data(), n_bytes, tokens.data(),
                          static_cast<int32_t>(tokens.size()), /*add_special=*/false,
                          parse_special);
  };
  const auto run_twice = [&] {
    int32_t n = run();
    if (n < 0) {  // more tokens than expected
      tokens.resize(static_cast<size_t>(-int64_t{n}));
      n = run();
    }
    tokens.resize(static_cast<size_t>(std::max(n, 0)));
  };
  try {
    if (const size_t length = longest_word(text); length > kShortWord) {
      run_on_deep_stack(length * kStackBytesPerCharacter, run_twice);
    } else {
      run_twice();
    }
  } catch (const Error& error) {
    throw Error(error.code(), std::string("the text cannot be tokenized: ") + error.what());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted, "no memory to tokenize the text");
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kBadData,
                "'" + path_ + "': the text cannot be tokenized: " + error.what());
  }
  return tokens;
}

std::vector<Token> Vocabulary::tokenize(std::string_view text, SpecialText special,
                                        TextStart start) const {
  if (const std::optional<size_t> offset = first_invalid_utf8(text)) {
    throw Error(ErrorCode::kBadData, "the text is not UTF-8: byte " + std::to_string(*offset) +
                                         " of " + std::to_string(text.size()) +
                                         " cannot be part of a character");
  }
  if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()) - 1) {
    throw Error(ErrorCode::kInvalidArgument,
                "the text has " + std::to_string(text.size()) + " bytes (allowed: 2147483646)");
  }
  const bool parse_special = special == SpecialText::kParse;
  if (is_sentencepiece_) {
    return start == TextStart::kNew ? tokenize_raw(text, parse_special)
                                    : tokenize_continued(text, parse_special);
  }
  std::vector<Token> tokens = tokenize_raw(text, parse_special);
  warn_about_lost_bytes(text, tokens);
  return tokens;
}

// The added space goes before a line break, which is a token of its own; both are cut off again.
std::vector<Token> Vocabulary::tokenize_continued(std::string_view text, bool parse_special) const {
  const std::vector<Token> lead = tokenize_raw("\n", parse_special);
  std::vector<Token> tokens = tokenize_raw("\n" + std::string(text), parse_special);
  if (tokens.size() < lead.size() || !std::equal(lead.begin(), lead.end(), tokens.begin())) {
    return tokenize_raw(text, parse_special);  // the vocabulary joins line breaks with words
  }
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(lead.size()));
  return tokens;
}

// Byte-level vocabularies need not have all bytes (SmolLM2's lacks those of rare control characters and
// planes), and libllama leaves out what they lack without a word.
void Vocabulary::warn_about_lost_bytes(std::string_view text,
                                       const std::vector<Token>& tokens) const {
  size_t n_bytes = 0;
  for (const Token token : tokens) {
    n_bytes += piece(token, /*render_special=*/true).size();
  }
  if (n_bytes < text.size()) {
    log_warning(
        std::to_string(text.size() - n_bytes) + " of " + std::to_string(text.size()) +
        " bytes of the text cannot be spelled with this model's vocabulary and are left out");
  }
}

std::string Vocabulary::piece(Token token, bool render_special) const {
  if (token < 0 || token >= n_tokens()) {
    throw Error(ErrorCode::kInvalidArgument, "token " + std::to_string(token) + " (allowed: 0 to " +
                                                 std::to_string(n_tokens() - 1) + ")");
  }
  char buffer[64];
  int32_t n = llama_token_to_piece(raw(), token, buffer, sizeof buffer, 0, render_special);
  if (n >= 0) {
    return {buffer, static_cast<size_t>(n)};
  }
  std::string text(static_cast<size_t>(-int64_t{n}), '\0');
  n = llama_token_to_piece(raw(), token, text.data(), -n, 0, render_special);
  text.resize(static_cast<size_t>(std::max(n, 0)));
  return text;
}

int Vocabulary::n_tokens() const {
  return llama_vocab_n_tokens(raw());
}

bool Vocabulary::ends_generation(Token token) const {
  return llama_vocab_is_eog(raw(), token);
}

bool Vocabulary::adds_bos() const {
  return llama_vocab_get_add_bos(raw());
}

Token Vocabulary::bos() const {
  return llama_vocab_bos(raw());
}

std::string Vocabulary::chat_template() const {
  const char* text = llama_model_chat_template(model_, /*name=*/nullptr);
  return text == nullptr ? "" : text;
}

const llama_vocab* Vocabulary::raw() const {
  return llama_model_get_vocab(model_);
}

}  // namespace winnow::model
