// Tokens know their bytes of the text, in every vocabulary.

#include "model/token_bytes.h"

#include <gtest/gtest.h>

#include "model/vocabulary.h"
#include "support/error_of.h"
#include "support/models.h"
#include "support/tiny_model.h"

namespace winnow::model {
namespace {

const char* const kTexts[] = {
    "x",
    " x",
    "  two spaces,  and\n\n\tmore   ",
    "naïve façade – 漢字かな 한국어 😀👩‍👩‍👧‍👦 עברית",
    "{\"key\": [1, 2.5e-3, null]}\r\nint main() { return 0; }",
    "a\nb\n\n\nc <|im_end|> </s> <start_of_turn>",
};

// The ranges ascend, each is spelled by its token, and together they are the text.
void expect_exact(const Vocabulary& vocabulary, const std::string& text, TextStart start,
                  bool spells_all) {
  const std::vector<Token> tokens = vocabulary.tokenize(text, SpecialText::kPlain, start);
  const std::vector<ByteRange> ranges = byte_ranges(vocabulary, text, tokens);
  ASSERT_EQ(ranges.size(), tokens.size());
  size_t end = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (spells_all) {
      ASSERT_EQ(ranges[i].begin, end) << text << " token " << i;
    } else {
      ASSERT_GE(ranges[i].begin, end) << text << " token " << i;
    }
    end = ranges[i].end;
    std::string piece = vocabulary.piece(tokens[i], /*render_special=*/true);
    const std::string bytes = text.substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
    if (i == 0 && piece.size() == bytes.size() + 1) {
      piece.erase(0, 1);
    }
    ASSERT_EQ(bytes, piece) << text << " token " << i;
  }
  if (spells_all) {
    ASSERT_EQ(end, text.size()) << text;
  }
}

TEST(TokenBytes, AreExactInTinyVocabularies) {
  for (const bool sentencepiece : {false, true}) {
    const GgufFile file(test::write_tiny_model({.sentencepiece = sentencepiece}));
    const Vocabulary vocabulary(file);
    for (const char* text : kTexts) {
      expect_exact(vocabulary, text, TextStart::kNew, true);
      expect_exact(vocabulary, text, TextStart::kContinues, true);
    }
  }
}

TEST(TokenBytes, AreExactInRealVocabularies) {
  int n_found = 0;
  for (const char* name : {test::kSmolLm2, test::kQwen2, test::kGemma3}) {
    const std::optional<std::string> path = test::find_model(name);
    if (!path) {
      continue;
    }
    ++n_found;
    const GgufFile file(*path);
    const Vocabulary vocabulary(file);
    for (const char* text : kTexts) {
      expect_exact(vocabulary, text, TextStart::kNew, name != std::string(test::kSmolLm2));
      expect_exact(vocabulary, text, TextStart::kContinues, name != std::string(test::kSmolLm2));
    }
  }
  if (n_found == 0) {
    GTEST_SKIP() << "no model is there";
  }
}

// SmolLM2 cannot spell some control characters, and leaves them out.
TEST(TokenBytes, BytesThatAreLeftOutBelongToNoToken) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  const GgufFile file(path);
  const Vocabulary vocabulary(file);
  const std::string text = "before\x04\x05 after\x06";
  const std::vector<Token> tokens = vocabulary.tokenize(text, SpecialText::kPlain);
  const std::vector<ByteRange> ranges = byte_ranges(vocabulary, text, tokens);
  ASSERT_FALSE(ranges.empty());
  std::string joined;
  for (const ByteRange& range : ranges) {
    joined += text.substr(range.begin, range.end - range.begin);
  }
  std::string spelled;
  for (const Token token : tokens) {
    spelled += vocabulary.piece(token, true);
  }
  EXPECT_EQ(joined, spelled);
}

TEST(TokenBytes, OfAnotherTextAreRefused) {
  const GgufFile file(test::write_tiny_model());
  const Vocabulary vocabulary(file);
  const std::vector<Token> tokens = vocabulary.tokenize("the world", SpecialText::kPlain);
  EXPECT_NE(
      test::error_of(ErrorCode::kUnsupported, [&] { byte_ranges(vocabulary, "another", tokens); })
          .find("is not found in it"),
      std::string::npos);
  EXPECT_TRUE(byte_ranges(vocabulary, "", {}).empty());
}

}  // namespace
}  // namespace winnow::model
