// Tokenizing is exact, keeps what users write apart from what templates write, and survives any text.

#include "model/vocabulary.h"

#include <gtest/gtest.h>

#include "gguf.h"
#include "model/chat_template.h"
#include "model/utf8.h"
#include "support/error_of.h"
#include "support/models.h"
#include "support/tiny_model.h"

namespace winnow::model {
namespace {

std::string text_of(const Vocabulary& vocabulary, const std::vector<Token>& tokens) {
  std::string text;
  for (const Token token : tokens) {
    text += vocabulary.piece(token);
  }
  return text;
}

class TinyVocabulary {
 public:
  explicit TinyVocabulary(const test::TinyModelOptions& options)
      : file_(test::write_tiny_model(options)), vocabulary_(file_) {}
  const Vocabulary& operator*() const { return vocabulary_; }
  const Vocabulary* operator->() const { return &vocabulary_; }

 private:
  GgufFile file_;
  Vocabulary vocabulary_;
};

const char* const kMixedTexts[] = {
    "",
    " ",
    "Plain words, and two  spaces.\n\n\tA tab.\r\n",
    "emoji 😀👩‍👩‍👧‍👦🏳️‍🌈, CJK 漢字かな交じり文 한국어, "
    "العربية "
    "עברית, "
    "naïve "
    "façade",
    "int main(int argc, char** argv) { return argv[0][1] << 2; }  // {\"key\": [1, 2.5e-3, null]}",
    "<html lang=\"en\"><!-- a & b &amp; c --></html>",
};

TEST(Vocabulary, GivesMixedTextsBack) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  const GgufFile file(path);
  const Vocabulary vocabulary(file);
  for (const char* text : kMixedTexts) {
    EXPECT_EQ(text_of(vocabulary, vocabulary.tokenize(text, SpecialText::kPlain)), text);
  }
}

TEST(Vocabulary, OfATinyModelGivesMixedTextsBack) {
  for (const char* pre_tokenizer : {"gpt-2", "qwen2", "llama-bpe", "smollm", "tekken"}) {
    test::TinyModelOptions options;
    options.pre_tokenizer = pre_tokenizer;
    const TinyVocabulary vocabulary(options);
    for (const char* text : kMixedTexts) {
      EXPECT_EQ(text_of(*vocabulary, vocabulary->tokenize(text, SpecialText::kPlain)), text)
          << pre_tokenizer;
    }
  }
}

TEST(Vocabulary, KeepsSpecialTextOfUsersAsText) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  const GgufFile file(path);
  const Vocabulary vocabulary(file);
  const std::string text = "a<|im_end|>";
  const std::vector<Token> plain = vocabulary.tokenize(text, SpecialText::kPlain);
  const std::vector<Token> parsed = vocabulary.tokenize(text, SpecialText::kParse);
  EXPECT_EQ(text_of(vocabulary, plain), text);
  for (const Token token : plain) {
    EXPECT_FALSE(vocabulary.ends_generation(token));
  }
  ASSERT_EQ(parsed.size(), 2U);
  EXPECT_TRUE(vocabulary.ends_generation(parsed[1]));
  EXPECT_EQ(vocabulary.piece(parsed[1]), "");
  EXPECT_EQ(vocabulary.piece(parsed[1], /*render_special=*/true), "<|im_end|>");
}

TEST(Vocabulary, AddsNoBeginningOfText) {
  test::TinyModelOptions options;
  options.sentencepiece = true;
  options.edit = [](gguf_context* gguf) {
    gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", true);
  };
  const TinyVocabulary vocabulary(options);
  EXPECT_TRUE(vocabulary->adds_bos());
  EXPECT_EQ(vocabulary->bos(), 1);
  EXPECT_TRUE(vocabulary->tokenize("", SpecialText::kPlain).empty());
  EXPECT_NE(vocabulary->tokenize("the", SpecialText::kPlain).front(), vocabulary->bos());
}

TEST(Vocabulary, RefusesTextThatIsNotUtf8WithTheOffset) {
  const TinyVocabulary vocabulary({});
  const std::pair<std::string, std::string> cases[] = {
      {"abc\xff", "byte 3 of 4"},
      {"\x80", "byte 0 of 1"},              // a continuation without a start
      {"é\xc3", "byte 2 of 3"},             // cut off
      {"\xc0\xaf", "byte 0 of 2"},          // overlong
      {"a\xed\xa0\x80", "byte 1 of 4"},     // a surrogate
      {"\xf4\x90\x80\x80", "byte 0 of 4"},  // beyond U+10FFFF
  };
  for (const auto& [text, expected] : cases) {
    SCOPED_TRACE(expected);
    const std::string message = test::error_of(
        ErrorCode::kBadData, [&] { vocabulary->tokenize(text, SpecialText::kPlain); });
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
}

TEST(Vocabulary, SurvivesVeryLongWords) {
  // libllama's regular expressions recurse once per character of a word for these.
  for (const char* pre_tokenizer : {"tekken", "deepseek-llm", "default", "gpt-2"}) {
    test::TinyModelOptions options;
    options.pre_tokenizer = pre_tokenizer;
    const TinyVocabulary vocabulary(options);
    for (const char* unit : {"x", " ", "7", "-", "\n", "中"}) {
      std::string text;
      while (text.size() < 60000) {
        text += unit;
      }
      EXPECT_EQ(text_of(*vocabulary, vocabulary->tokenize(text, SpecialText::kPlain)), text)
          << pre_tokenizer << " '" << unit << "'";
    }
  }
}

TEST(Vocabulary, KeepsTextWithNulBytes) {
  const TinyVocabulary vocabulary({});
  const std::string text("a\0b", 3);
  EXPECT_EQ(text_of(*vocabulary, vocabulary->tokenize(text, SpecialText::kPlain)), text);
}

TEST(Vocabulary, PutsASpaceBeforeASentencePieceTextUnlessItContinues) {
  test::TinyModelOptions options;
  options.sentencepiece = true;
  const TinyVocabulary vocabulary(options);
  const std::vector<Token> whole = vocabulary->tokenize("the world in", SpecialText::kPlain);
  EXPECT_EQ(text_of(*vocabulary, whole), " the world in");
  std::vector<Token> pieces = vocabulary->tokenize("the world", SpecialText::kPlain);
  for (const Token token :
       vocabulary->tokenize(" in", SpecialText::kPlain, TextStart::kContinues)) {
    pieces.push_back(token);
  }
  EXPECT_EQ(pieces, whole);
  EXPECT_EQ(
      text_of(*vocabulary, vocabulary->tokenize("in", SpecialText::kPlain, TextStart::kContinues)),
      "in");
  EXPECT_TRUE(vocabulary->tokenize("", SpecialText::kPlain, TextStart::kContinues).empty());
}

TEST(Vocabulary, RefusesTokensOutOfRange) {
  const TinyVocabulary vocabulary({});
  EXPECT_THROW(vocabulary->piece(-1), Error);
  EXPECT_THROW(vocabulary->piece(vocabulary->n_tokens()), Error);
}

TEST(LongestWord, CountsCharactersWithSpacesOnOneSide) {
  EXPECT_EQ(longest_word(""), 1U);
  EXPECT_EQ(longest_word("ab cd"), 4U);      // "ab " or " cd", and one space before
  EXPECT_EQ(longest_word("a\n\n\nbb"), 6U);  // "\n\n\nbb"
  EXPECT_EQ(longest_word("é\u3000é"), 3U);   // an ideographic space is a space
}

TEST(ChatTemplate, RendersOneUserTurn) {
  const RenderedTurn named = render_user_turn("chatml");
  EXPECT_EQ(named.before_next, "<|im_end|>\n<|im_start|>user\n");
  EXPECT_EQ(named.before, "<|im_start|>user\n");
  EXPECT_EQ(named.after, "<|im_end|>\n<|im_start|>assistant\n");
  const RenderedTurn stored = render_user_turn(TinyVocabulary({})->chat_template());
  EXPECT_EQ(stored.before, named.before);
  EXPECT_EQ(stored.after, named.after);
}

TEST(ChatTemplate, RendersEveryTemplateThatTrimsOrMovesText) {
  for (const char* name : {"llama2", "llama3", "mistral-v1", "mistral-v7", "phi3", "gemma",
                           "deepseek", "command-r", "vicuna", "zephyr"}) {
    const RenderedTurn turn = render_user_turn(name);
    EXPECT_FALSE((turn.before + turn.after).empty()) << name;
  }
}

TEST(ChatTemplate, RefusesUnknownOnesAndNamesTheWaysRound) {
  for (const char* text : {"", "no such template", "{{ messages }}"}) {
    SCOPED_TRACE(text);
    const std::string message =
        test::error_of(ErrorCode::kUnsupported, [&] { render_user_turn(text); });
    EXPECT_NE(message.find("--no-chat"), std::string::npos) << message;
    EXPECT_NE(message.find("--chat-template NAME ("), std::string::npos) << message;
    EXPECT_NE(message.find("chatml"), std::string::npos) << message;
  }
}

}  // namespace
}  // namespace winnow::model
