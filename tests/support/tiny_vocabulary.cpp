#include "support/tiny_vocabulary.h"

#include <string>
#include <vector>

#include "gguf.h"

namespace winnow::test {
namespace {

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

}  // namespace

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

}  // namespace winnow::test
