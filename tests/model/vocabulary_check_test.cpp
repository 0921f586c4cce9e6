// Vocabularies that libllama would abort on, or read wrongly, are refused before it sees them.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "model/expect_error.h"

namespace winnow::model {
namespace {

using test::expect_edit_error;
using test::TinyModelOptions;

TinyModelOptions sentencepiece() {
  TinyModelOptions options;
  options.sentencepiece = true;
  return options;
}

std::vector<std::string> tokens_of(const gguf_context* g) {
  const int64_t id = gguf_find_key(g, "tokenizer.ggml.tokens");
  std::vector<std::string> tokens;
  for (size_t i = 0; i < gguf_get_arr_n(g, id); ++i) {
    tokens.emplace_back(gguf_get_arr_str(g, id, i));
  }
  return tokens;
}

void set_token(gguf_context* g, size_t i, const std::string& text) {
  std::vector<std::string> tokens = tokens_of(g);
  tokens[i] = text;
  std::vector<const char*> pointers;
  for (const std::string& token : tokens) {
    pointers.push_back(token.c_str());
  }
  gguf_set_arr_str(g, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
}

void set_merges(gguf_context* g, const char* merge) {
  gguf_set_arr_str(g, "tokenizer.ggml.merges", &merge, 1);
}

TEST(VocabularyCheck, RefusesOtherTokenizersByName) {
  for (const char* name : {"bert", "t5", "rwkv", "gemma4", "none", "plamo2", "whitespace", "x"}) {
    expect_edit_error(
        [name](gguf_context* g) { gguf_set_val_str(g, "tokenizer.ggml.model", name); },
        ErrorCode::kUnsupported, "tokenizer '" + std::string(name) + "' (supported: gpt2, llama)");
  }
}

TEST(VocabularyCheck, RefusesPreTokenizersThatAbort) {
  for (const char* name : {"gemma4", "granite-embed-multi-311m", "sarvam-moe", "whitespace"}) {
    expect_edit_error([name](gguf_context* g) { gguf_set_val_str(g, "tokenizer.ggml.pre", name); },
                      ErrorCode::kUnsupported, "pre-tokenizer '" + std::string(name) + "'");
  }
}

TEST(VocabularyCheck, PassesOnWhatLibllamaSaysOfUnknownPreTokenizers) {
  expect_edit_error([](gguf_context* g) { gguf_set_val_str(g, "tokenizer.ggml.pre", "klingon"); },
                    ErrorCode::kBadData, "unknown pre-tokenizer type: 'klingon'");
}

TEST(VocabularyCheck, RefusesMissingArrays) {
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.merges"}) {
    expect_edit_error([key](gguf_context* g) { gguf_remove_key(g, key); }, ErrorCode::kBadData,
                      "key '" + std::string(key) + "' is missing");
  }
}

TEST(VocabularyCheck, RefusesArraysOfAnotherType) {
  for (const char* key : {"tokens", "merges", "scores", "token_type"}) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    expect_edit_error([&](gguf_context* g) { gguf_set_val_u32(g, name.c_str(), 7); },
                      ErrorCode::kBadData, "key '" + name + "' is of type 'u32', not an array");
    const int8_t bytes[] = {1, 2};
    expect_edit_error(
        [&](gguf_context* g) { gguf_set_arr_data(g, name.c_str(), GGUF_TYPE_INT8, bytes, 2); },
        ErrorCode::kBadData, "key '" + name + "' is of type 'i8' (an array)");
  }
}

TEST(VocabularyCheck, RefusesTokensThatAreThereTwice) {
  expect_edit_error([](gguf_context* g) { set_token(g, 70, "a"); }, ErrorCode::kBadData,
                    "('a') is there twice");
  // libllama names an empty token.
  expect_edit_error(
      [](gguf_context* g) {
        set_token(g, 5, "");
        set_token(g, 9, "[EMPTY_5]");
      },
      ErrorCode::kBadData, "('[EMPTY_5]') is there twice");
}

TEST(VocabularyCheck, RefusesNoTokens) {
  expect_edit_error(
      [](gguf_context* g) { gguf_set_arr_str(g, "tokenizer.ggml.tokens", nullptr, 0); },
      ErrorCode::kBadData, "there are 0 tokens");
}

TEST(VocabularyCheck, RefusesArraysOfUnequalLength) {
  const float scores[] = {1, 2};
  expect_edit_error(
      [&](gguf_context* g) {
        gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, 2);
      },
      ErrorCode::kBadData, "'tokenizer.ggml.scores' has 2 entries for 289 tokens");
  const int32_t types[] = {1, 1, 1};
  expect_edit_error(
      [&](gguf_context* g) {
        gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, 3);
      },
      ErrorCode::kBadData, "'tokenizer.ggml.token_type' has 3 entries for 289 tokens");
}

TEST(VocabularyCheck, RefusesTokenTypesAndScoresThatAreNone) {
  expect_edit_error(
      [](gguf_context* g) {
        std::vector<int32_t> types(289, 1);
        types[17] = 7;
        gguf_set_arr_data(g, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), 289);
      },
      ErrorCode::kBadData, "token 17 is of type 7 (allowed: 0 to 6)");
  expect_edit_error(
      [](gguf_context* g) {
        const std::vector<float> scores(tokens_of(g).size(), NAN);
        gguf_set_arr_data(g, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(),
                          scores.size());
      },
      ErrorCode::kBadData, "holds a NaN", sentencepiece());
}

TEST(VocabularyCheck, RefusesMergesThatAreNoPairs) {
  for (const char* merge : {"", "ab", "a ", " ", " b"}) {
    expect_edit_error([merge](gguf_context* g) { set_merges(g, merge); }, ErrorCode::kBadData,
                      "merge 0 is '" + std::string(merge) + "', not two pieces");
  }
}

TEST(VocabularyCheck, RefusesIdsOutOfRange) {
  for (const char* key :
       {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id", "unknown_token_id",
        "seperator_token_id", "padding_token_id", "cls_token_id", "mask_token_id",
        "fim_pre_token_id", "fim_sep_token_id", "prefix_token_id"}) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    expect_edit_error([&](gguf_context* g) { gguf_set_val_u32(g, name.c_str(), 289); },
                      ErrorCode::kBadData, "key '" + name + "' is 289 (allowed: 0 to 288)");
    expect_edit_error([&](gguf_context* g) { gguf_set_val_i32(g, name.c_str(), -1); },
                      ErrorCode::kBadData, "key '" + name + "' is -1");
  }
}

TEST(VocabularyCheck, RefusesFlagsAndTemplatesOfAnotherType) {
  for (const char* key : {"add_bos_token", "add_eos_token", "add_space_prefix"}) {
    const std::string name = std::string("tokenizer.ggml.") + key;
    expect_edit_error([&](gguf_context* g) { gguf_set_val_u32(g, name.c_str(), 1); },
                      ErrorCode::kBadData, "'" + name + "' is of type 'u32', not true or false");
  }
  expect_edit_error([](gguf_context* g) { gguf_set_val_u32(g, "tokenizer.chat_template", 1); },
                    ErrorCode::kBadData, "'tokenizer.chat_template' is of type 'u32'");
}

TEST(VocabularyCheck, RefusesSentencePieceWithoutEveryByte) {
  expect_edit_error([](gguf_context* g) { set_token(g, 3 + 0x41, "<0x41 is gone>"); },
                    ErrorCode::kBadData, "no token '<0x41>'", sentencepiece());
}

}  // namespace
}  // namespace winnow::model
