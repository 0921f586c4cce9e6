// Tokens get the roles of their bytes, whatever the vocabulary cuts the text into.

#include "engine/token_roles.h"

#include <gtest/gtest.h>

#include <string>

#include "roles/stream.h"

namespace winnow::engine {
namespace {

using model::ByteRange;
using roles::Role;

std::vector<roles::Label> labels_of(std::string_view text, std::string_view format,
                                    const std::vector<ByteRange>& tokens,
                                    Precedence precedence = Precedence::kOwn) {
  return token_labels(tokens, roles::label_text(text, roles::find_format(format)), precedence);
}

TEST(TokenRoles, TakeTheHighestOfTheirBytes) {
  //                            0123456789
  const auto labels = labels_of(R"({"a": "b"})", "json", {{0, 2}, {2, 5}, {5, 7}, {7, 10}});
  EXPECT_EQ(labels[0].role, Role::kKey);    // {"
  EXPECT_EQ(labels[1].role, Role::kKey);    // a":
  EXPECT_EQ(labels[2].role, Role::kValue);  // space and "
  EXPECT_EQ(labels[3].role, Role::kValue);  // b"}
}

// A quote that ends a value is what a model stops at: in compact JSON it shares its token with the next key's quote.
TEST(TokenRoles, GoWithTheNameOrValueThatATokenEnds) {
  //                                0123456789012345
  const auto labels = labels_of(R"({"a":"b","c":1})", "json", {{0, 2}, {3, 6}, {7, 10}, {11, 13}});
  EXPECT_EQ(labels[0].role, Role::kKey);    // {"
  EXPECT_EQ(labels[1].role, Role::kKey);    // ":"
  EXPECT_EQ(labels[2].role, Role::kValue);  // ","
  EXPECT_EQ(labels[3].role, Role::kKey);    // ":
}

TEST(TokenRoles, AreSpaceOnlyWhereAllOfThemIs) {
  const std::string text = "<a>b</a>\n word";
  EXPECT_EQ(labels_of(text, "xml", {{8, 10}, {9, 14}})[0].role, Role::kSpace);
  EXPECT_EQ(labels_of(text, "xml", {{8, 10}, {9, 14}})[1].role, Role::kProse);
}

TEST(TokenRoles, FollowTheStudysPrecedenceWhereAsked) {
  const std::string text = "{\"a\": 1} b";
  const std::vector<ByteRange> tokens{{0, 2}, {4, 6}, {8, 10}};
  EXPECT_EQ(labels_of(text, "paper", tokens, Precedence::kPaper)[0].role, Role::kKey);
  EXPECT_EQ(labels_of(text, "paper", tokens, Precedence::kPaperFlipped)[0].role, Role::kDelim);
  const std::string rows = "| a |\n|---|\n";
  EXPECT_EQ(labels_of(rows + "x", "paper", {{11, 13}}, Precedence::kPaper)[0].role, Role::kDelim);
}

TEST(TokenRoles, CountsTheGreatestDepthOfTheWinningBytes) {
  const auto labels = labels_of(R"([1,[2],3])", "json", {{1, 5}, {7, 8}});
  EXPECT_EQ(labels[0].role, Role::kValue);
  EXPECT_EQ(labels[0].depth, 2);
  EXPECT_EQ(labels[1].depth, 1);
}

TEST(TokenRoles, AreProseWithoutBytes) {
  EXPECT_EQ(labels_of("{\"a\": 1}", "json", {{8, 8}})[0].role, Role::kProse);
  EXPECT_EQ(labels_of("", "json", {{0, 0}})[0].role, Role::kProse);
}

}  // namespace
}  // namespace winnow::engine
