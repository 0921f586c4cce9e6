// Checks the vocabulary of a file before libllama sees it. libllama 0.5.0 aborts the process on tokens that are
// there twice and on tokenizers of the kinds "none" and "whitespace", throws while it tokenizes when a
// SentencePiece vocabulary lacks a byte, and goes on with defaults where an id is out of range.

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include "gguf.h"
#include "model/gguf_file.h"

namespace winnow::model {
namespace {

constexpr int kMaxTokens = 1 << 24;
constexpr int32_t kLastType = 6;  // LLAMA_TOKEN_TYPE_BYTE
constexpr char kHex[] = "0123456789ABCDEF";

// "gpt2" is byte-level BPE, "llama" is SentencePiece; no supported family uses another.
constexpr std::string_view kTokenizers[] = {"gpt2", "llama"};

// Pre-tokenizers of "gpt2" that are not byte-level, which no supported family uses. With "whitespace", libllama
// aborts at the first space of a text.
constexpr std::string_view kRefusedPreTokenizers[] = {"gemma4", "granite-embed-multi-311m",
                                                      "sarvam-moe", "whitespace"};

constexpr const char* kIdKeys[] = {"bos_token_id",     "eos_token_id",     "eot_token_id",
                                   "eom_token_id",     "unknown_token_id", "seperator_token_id",
                                   "padding_token_id", "cls_token_id",     "mask_token_id",
                                   "fim_pre_token_id", "fim_suf_token_id", "fim_mid_token_id",
                                   "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id",
                                   "prefix_token_id",  "suffix_token_id",  "middle_token_id"};

constexpr const char* kFlagKeys[] = {"add_bos_token", "add_eos_token", "add_sep_token",
                                     "add_space_prefix", "remove_extra_whitespaces"};

std::string full_key(const char* name) {
  return std::string("tokenizer.ggml.") + name;
}

class VocabularyCheck {
 public:
  explicit VocabularyCheck(const GgufFile& file) : file_(file), gguf_(file.raw()) {}

  int run() {
    check_kind();
    check_tokens();
    check_scores();
    check_token_types();
    for (const char* name : kIdKeys) {
      file_.find_integer(full_key(name), 0, n_tokens_ - 1);
    }
    for (const char* name : kFlagKeys) {
      file_.find_bool(full_key(name));
    }
    file_.find_string("tokenizer.chat_template");
    return n_tokens_;
  }

 private:
  void check_kind() {
    tokenizer_ = file_.string("tokenizer.ggml.model");
    if (std::find(std::begin(kTokenizers), std::end(kTokenizers), tokenizer_) ==
        std::end(kTokenizers)) {
      file_.throw_unsupported("tokenizer " + quoted(tokenizer_) + " (supported: gpt2, llama)");
    }
    const std::string pre = file_.find_string("tokenizer.ggml.pre").value_or("");
    if (tokenizer_ == "gpt2" &&
        std::find(std::begin(kRefusedPreTokenizers), std::end(kRefusedPreTokenizers), pre) !=
            std::end(kRefusedPreTokenizers)) {
      file_.throw_unsupported("pre-tokenizer " + quoted(pre));
    }
    if (tokenizer_ == "gpt2") {
      check_merges();
    }
  }

  // The key's id when it holds an array of one of `types`; -1 when it is missing.
  int64_t find_array(const char* name, std::initializer_list<gguf_type> types) const {
    const std::string key = full_key(name);
    const int64_t id = gguf_find_key(gguf_, key.c_str());
    if (id < 0) {
      return -1;
    }
    const bool is_array = gguf_get_kv_type(gguf_, id) == GGUF_TYPE_ARRAY;
    const gguf_type type = is_array ? gguf_get_arr_type(gguf_, id) : gguf_get_kv_type(gguf_, id);
    if (!is_array || std::find(types.begin(), types.end(), type) == types.end()) {
      file_.throw_damaged("key '" + key + "' is of type '" + gguf_type_name(type) + "'" +
                          (is_array ? " (an array)" : "") + ", not an array of '" +
                          gguf_type_name(*types.begin()) + "'");
    }
    return id;
  }

  // libllama splits a merge at its first space after the first byte.
  void check_merges() const {
    const int64_t id = find_array("merges", {GGUF_TYPE_STRING});
    if (id < 0) {
      file_.throw_damaged("key 'tokenizer.ggml.merges' is missing");
    }
    const size_t n_merges = gguf_get_arr_n(gguf_, id);
    if (n_merges > kMaxTokens) {
      file_.throw_damaged("there are " + std::to_string(n_merges) +
                          " merges (allowed: " + std::to_string(kMaxTokens) + ")");
    }
    for (size_t i = 0; i < n_merges; ++i) {
      const std::string_view merge = gguf_get_arr_str(gguf_, id, i);
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        file_.throw_damaged("merge " + std::to_string(i) + " is " + quoted(merge) +
                            ", not two pieces with a space between them");
      }
    }
  }

  void check_tokens() {
    const int64_t id = find_array("tokens", {GGUF_TYPE_STRING});
    if (id < 0) {
      file_.throw_damaged("key 'tokenizer.ggml.tokens' is missing");
    }
    const size_t n = gguf_get_arr_n(gguf_, id);
    if (n == 0 || n > kMaxTokens) {
      file_.throw_damaged("there are " + std::to_string(n) + " tokens (allowed: 1 to " +
                          std::to_string(kMaxTokens) + ")");
    }
    n_tokens_ = static_cast<int>(n);
    std::unordered_set<std::string> seen;
    seen.reserve(n);
    for (size_t i = 0; i < n; ++i) {
      std::string token = gguf_get_arr_str(gguf_, id, i);
      if (token.empty()) {
        token = "[EMPTY_" + std::to_string(i) + "]";  // the name that libllama gives it
      }
      if (!seen.insert(token).second) {
        file_.throw_damaged("token " + std::to_string(i) + " (" + quoted(token) +
                            ") is there twice");
      }
    }
    if (tokenizer_ == "llama") {
      check_bytes(seen);
    }
  }

  // A character that is no token is spelled in bytes, "<0x00>" to "<0xFF>", or as the byte itself.
  void check_bytes(const std::unordered_set<std::string>& tokens) const {
    for (int byte = 0; byte < 256; ++byte) {
      const std::string name = std::string("<0x") + kHex[byte / 16] + kHex[byte % 16] + ">";
      if (!tokens.contains(name) && !tokens.contains(std::string(1, static_cast<char>(byte)))) {
        file_.throw_damaged("the vocabulary has no token '" + name + "'");
      }
    }
  }

  void check_length(const char* name, int64_t id) const {
    const size_t n = gguf_get_arr_n(gguf_, id);
    if (n != static_cast<size_t>(n_tokens_)) {
      file_.throw_damaged("key '" + full_key(name) + "' has " + std::to_string(n) +
                          " entries for " + std::to_string(n_tokens_) + " tokens");
    }
  }

  void check_scores() const {
    const int64_t id = find_array("scores", {GGUF_TYPE_FLOAT32, GGUF_TYPE_INT32});
    if (id < 0) {
      return;
    }
    check_length("scores", id);
    if (gguf_get_arr_type(gguf_, id) == GGUF_TYPE_FLOAT32) {
      const auto* scores = static_cast<const float*>(gguf_get_arr_data(gguf_, id));
      if (std::any_of(scores, scores + n_tokens_, [](float score) { return std::isnan(score); })) {
        file_.throw_damaged("key 'tokenizer.ggml.scores' holds a NaN");
      }
    }
  }

  void check_token_types() const {
    const int64_t id = find_array("token_type", {GGUF_TYPE_INT32});
    if (id < 0) {
      return;
    }
    check_length("token_type", id);
    const auto* types = static_cast<const int32_t*>(gguf_get_arr_data(gguf_, id));
    for (int token = 0; token < n_tokens_; ++token) {
      if (types[token] < 0 || types[token] > kLastType) {
        file_.throw_damaged("token " + std::to_string(token) + " is of type " +
                            std::to_string(types[token]) + " (allowed: 0 to 6)");
      }
    }
  }

  const GgufFile& file_;
  const gguf_context* gguf_;
  std::string tokenizer_;
  int n_tokens_ = 0;
};

}  // namespace

int check_vocabulary(const GgufFile& file) {
  return VocabularyCheck(file).run();
}

}  // namespace winnow::model
