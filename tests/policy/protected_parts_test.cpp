// How much of what stays, as users write it, and spans that overlap.

#include "policy/protected_parts.h"

#include <gtest/gtest.h>

#include <random>

#include "policy/protect.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

using test::error_of;

std::string refusal(const char* text) {
  return error_of(ErrorCode::kInvalidArgument, [&] { parse_protected_parts(text); });
}

TEST(Floor, IsRowsOrAShareRoundedUp) {
  EXPECT_EQ(parse_floor("8").of(100), 8);
  EXPECT_EQ(parse_floor("8").of(5), 5);
  EXPECT_EQ(parse_floor("50%").of(5), 3);
  EXPECT_EQ(parse_floor("1.1%").of(3000), 33);  // 33.000000000000004 in binary
  EXPECT_EQ(parse_floor("0.1%").of(3), 1);
  EXPECT_EQ(parse_floor("100%").of(7), 7);
  EXPECT_EQ(Floor{}.of(7), 7);
}

TEST(Floor, ThatIsNoneIsRefused) {
  for (const char* text : {"", "0", "0%", "-1", "1.5", "101%", "%", "x", "1e3", "99999999999",
                           "1.2.3%", ".%", "5 %"}) {
    EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { parse_floor(text); })
                  .find("allowed: rows as in 8, a share as in 50%"),
              std::string::npos)
        << text;
  }
}

TEST(Floor, StandsBehindTheLastAt) {
  EXPECT_EQ(split_floor("a@b.com@50%").text, "a@b.com");
  EXPECT_EQ(split_floor("a@b.com@50%").floor.percent, 50);
  EXPECT_EQ(split_floor("a@b.com").text, "a@b.com");
  EXPECT_EQ(split_floor("a@b.com").floor.of(9), 9);
  EXPECT_EQ(split_floor("a@").text, "a@");
  error_of(ErrorCode::kInvalidArgument, [] { split_floor("a@0"); });
  error_of(ErrorCode::kInvalidArgument, [] { split_floor("a@200%"); });
}

TEST(ProtectedParts, HaveOneSpelling) {
  for (const auto& [text, canonical] : {std::pair{"none", "none"},
                                        {"both", "template+question"},
                                        {"question", "question"},
                                        {"question+template", "template+question"},
                                        {"user@50%+system", "system+user@50%"},
                                        {"assistant@8 + template@100%", "template+assistant@8"}}) {
    const auto parts = parse_protected_parts(text);
    EXPECT_EQ(to_string(parts), canonical);
    EXPECT_EQ(to_string(parse_protected_parts(canonical)), canonical);
  }
}

TEST(ProtectedParts, ThatAreNoneAreRefused) {
  EXPECT_NE(refusal("sytem").find("unknown part of a prompt 'sytem' (did you mean 'system'?"),
            std::string::npos);
  EXPECT_NE(refusal("user+user@5").find("'user' is there twice"), std::string::npos);
  EXPECT_NE(refusal("none+user").find("'none'"), std::string::npos);
  EXPECT_NE(refusal("user+").find("''"), std::string::npos);
  EXPECT_NE(refusal("user@0").find("floor '0'"), std::string::npos);
  EXPECT_NE(refusal("@50%").find("''"), std::string::npos);
}

TEST(DisjointSpans, JoinWhatStaysWhole) {
  const auto spans = disjoint({{10, 20}, {15, 30}, {30, 31}, {40, 40}, {2, 4}});
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_EQ(spans[0].begin, 2);
  EXPECT_EQ(spans[1].begin, 10);
  EXPECT_EQ(spans[1].end, 31);
  EXPECT_TRUE(disjoint({{3, 5, 0}}).empty());
}

// Whatever overlaps: parts ascend, and every span keeps what it would keep alone.
TEST(DisjointSpans, KeepEveryPromise) {
  std::mt19937 random(1);
  const auto draw = [&random](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<PositionSpan> spans;
    for (int n = draw(1, 5); n > 0; --n) {
      const int begin = draw(0, 60);
      const int end = begin + draw(1, 30);
      spans.push_back({begin, end, draw(0, 2) == 0 ? INT_MAX : draw(1, end - begin)});
    }
    const std::vector<PositionSpan> parts = disjoint(spans);
    for (size_t i = 1; i < parts.size(); ++i) {
      ASSERT_LE(parts[i - 1].end, parts[i].begin);
    }
    for (const PositionSpan& span : spans) {
      int n_least = 0;
      for (const PositionSpan& part : parts) {
        const bool is_inside = part.begin >= span.begin && part.end <= span.end;
        const int overlap = std::min(part.end, span.end) - std::max(part.begin, span.begin);
        if (is_inside) {
          n_least += std::min(part.n_least, part.end - part.begin);
        } else if (part.n_least == INT_MAX && overlap > 0) {  // joined with others
          n_least += overlap;
        }
      }
      ASSERT_GE(n_least, std::min(span.n_least, span.end - span.begin)) << "trial " << trial;
    }
  }
}

}  // namespace
}  // namespace winnow::policy
