#include "model/vocabulary.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "llama.h"
#include "model/libllama.h"

namespace winnow::model {
namespace {

// How many bytes the UTF-8 character at the start of `text` has; 0 when it is none. Overlong forms,
// surrogates and code points beyond U+10FFFF are none.
size_t utf8_length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  if (first < 0xc2 || first > 0xf4 || length > text.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  const unsigned char second = byte(1);
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_outside = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return is_overlong || is_outside ? 0 : length;
}

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const size_t length = utf8_length(text.substr(offset));
    if (length == 0) {
      return offset;
    }
    offset += length;
  }
  return std::nullopt;
}

}  // namespace

Vocabulary::Vocabulary(const GgufFile& file) : path_(file.path()) {
  start_libllama();
  clear_libllama_error();
  llama_model_params params = llama_model_default_params();
  params.vocab_only = true;
  params.progress_callback = [](float, void*) { return true; };  // the default prints dots
  model_ = llama_model_load_from_file(path_.c_str(), params);
  if (model_ == nullptr) {
    throw Error(ErrorCode::kBadData,
                "'" + path_ + "': libllama refuses the vocabulary: " + libllama_error());
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
  int32_t n = 0;
  try {
    n = run();
    if (n < 0) {
      tokens.resize(static_cast<size_t>(-int64_t{n}));
      n = run();
    }
  } catch (const std::exception& error) {
    throw Error(ErrorCode::kBadData,
                "'" + path_ + "': the text cannot be tokenized: " + error.what());
  }
  tokens.resize(static_cast<size_t>(std::max(n, 0)));
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
    if (start == TextStart::kNew || text.empty()) {
      return tokenize_raw(text, parse_special);
    }
    // The added space goes before a line break, which never merges with what follows; both are cut off.
    const std::vector<Token> lead = tokenize_raw("\n", parse_special);
    std::vector<Token> tokens = tokenize_raw("\n" + std::string(text), parse_special);
    if (tokens.size() < lead.size() || !std::equal(lead.begin(), lead.end(), tokens.begin())) {
      return tokenize_raw(text, parse_special);
    }
    tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(lead.size()));
    return tokens;
  }
  std::vector<Token> tokens = tokenize_raw(text, parse_special);
  size_t n_bytes = 0;
  for (const Token token : tokens) {
    n_bytes += piece(token, /*render_special=*/true).size();
  }
  if (n_bytes < text.size()) {
    log_warning(
        std::to_string(text.size() - n_bytes) + " of " + std::to_string(text.size()) +
        " bytes of the text cannot be spelled with this model's vocabulary and are left out");
  }
  return tokens;
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
