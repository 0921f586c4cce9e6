// Windows of texts do not overlap, and repeated text is found out.

#include "eval/text_windows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

TokenText text(const std::string& name, int first, int n) {
  TokenText made{.name = name, .tokens = std::vector<model::Token>(static_cast<size_t>(n))};
  std::iota(made.tokens.begin(), made.tokens.end(), first);
  return made;
}

TEST(TextWindows, AreSpreadOverTheTextsWithoutOverlap) {
  const model::Model model(test::write_tiny_model(), {});
  const int n_bos = model.vocabulary().adds_bos() ? 1 : 0;
  const std::vector<TokenText> texts{text("a", 0, 103), text("b", 1000, 9), text("c", 2000, 57)};
  for (const int n : {1, 2, 5, 15}) {
    int last_end = -1;
    for (int index = 0; index < n; ++index) {
      const TextWindow window = text_window(texts, model.vocabulary(), 10 + n_bos, index, n);
      ASSERT_EQ(std::ssize(window.tokens), 10 + n_bos);
      const model::Token first = window.tokens[static_cast<size_t>(n_bos)];
      EXPECT_GT(first, last_end);
      last_end = window.tokens.back();
      EXPECT_EQ(last_end, first + 9) << "within one text";
      EXPECT_EQ(window.name, first < 1000 ? "a" : "c");
    }
  }
  const std::string error = test::error_of(ErrorCode::kInvalidArgument, [&] {
    text_window(texts, model.vocabulary(), 10 + n_bos, 0, 16);
  });
  EXPECT_NE(error.find("15 windows"), std::string::npos) << error;
}

TEST(TextWindows, RepeatedTextIsFoundOut) {
  const std::vector<model::Token> once = text("", 0, 400).tokens;
  EXPECT_EQ(repeated_share(once), 0);
  EXPECT_EQ(repeated_share(std::span(once).first(20)), 0);
  std::vector<model::Token> looped;
  for (int i = 0; i < 400; ++i) {
    looped.push_back(i % 80);
  }
  EXPECT_GT(repeated_share(looped), 0.75);
  EXPECT_LT(repeated_share(looped), 0.85);
}

}  // namespace
}  // namespace winnow::eval
