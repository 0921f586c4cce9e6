#include "policy/budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "support/error_of.h"

namespace winnow::policy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& text) {
  return test::error_of(ErrorCode::kInvalidArgument, [&] { parse_budget(text); });
}

std::string refusal(const std::string& text, const BudgetContext& context) {
  return test::error_of(ErrorCode::kInvalidArgument,
                        [&] { resolve_budget(parse_budget(text), context); });
}

int rows(const std::string& text, const BudgetContext& context) {
  return resolve_budget(parse_budget(text), context);
}

TEST(Budget, ReadsRowsPercentAndBytes) {
  EXPECT_EQ(parse_budget("512").unit, Budget::Unit::kRows);
  EXPECT_EQ(parse_budget("512").amount, 512);
  EXPECT_EQ(parse_budget(" 12.5 % ").unit, Budget::Unit::kPercent);
  EXPECT_EQ(parse_budget(" 12.5 % ").amount, 12.5);
  EXPECT_EQ(parse_budget("64MiB").unit, Budget::Unit::kBytes);
  EXPECT_EQ(parse_budget("64MiB").amount, 64 * 1024 * 1024);
  EXPECT_EQ(parse_budget("1.5 GB").amount, 1.5e9);
  EXPECT_EQ(parse_budget("2KB").amount, 2000);
  EXPECT_EQ(parse_budget("2KiB").amount, 2048);
}

TEST(Budget, SpellingReadsBackAsTheSameBudget) {
  for (const char* text :
       {"1", "512", "10%", "0.1%", "33.333%", "100%", "64MiB", "1.5MiB", "64MB", "0.307KB"}) {
    EXPECT_EQ(parse_budget(text).to_string(), text);
  }
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const double bytes = std::floor(std::exp2(std::uniform_real_distribution<>(0, 49)(random)));
    const Budget budget{Budget::Unit::kBytes, bytes};
    const Budget again = parse_budget(budget.to_string());
    ASSERT_EQ(again.unit, Budget::Unit::kBytes) << budget.to_string();
    ASSERT_EQ(again.amount, bytes) << budget.to_string();
  }
}

TEST(Budget, NothingAndLessAreRefused) {
  for (const char* text : {"0", "0%", "0.0%", "0MiB", "00"}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr(text), HasSubstr("above 0")));
  }
  for (const char* text : {"-1", "-5%", "-1KiB", "+5"}) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr(text), HasSubstr("not a budget"))) << text;
  }
}

TEST(Budget, MoreThanEverythingIsRefused) {
  EXPECT_THAT(refusal("101%"), HasSubstr("100%"));
  EXPECT_THAT(refusal("100.001%"), HasSubstr("100%"));
  EXPECT_THAT(refusal("2147483648"), HasSubstr("1 to 1073741824"));
  EXPECT_THAT(refusal("99999999999999999999"), HasSubstr("1 to 1073741824"));
  EXPECT_THAT(refusal("999999999999999999999"), HasSubstr("20 digits"));
  EXPECT_THAT(refusal("99999999999GiB"), HasSubstr("bytes"));
}

TEST(Budget, WhatIsNotANumberIsRefusedWithTheAllowedForms) {
  for (const char* text :
       {"", " ", "abc", "nan", "inf", "NaN%", "%", "MiB", ".5%", "5.%", "1.2.3%", "--5", "0x10x"}) {
    EXPECT_THAT(refusal(text), HasSubstr("budget '")) << text;
  }
  EXPECT_THAT(refusal("abc"), AllOf(HasSubstr("512"), HasSubstr("10%"), HasSubstr("64MiB")));
}

TEST(Budget, UnknownUnitsAreRefusedWithTheAllowedOnes) {
  EXPECT_THAT(refusal("5 apples"),
              AllOf(HasSubstr("'apples'"), HasSubstr("KiB, MiB, GiB, KB, MB, GB")));
  EXPECT_THAT(refusal("1e3"), HasSubstr("'e3'"));
  EXPECT_THAT(refusal("64mb"), HasSubstr("'mb'"));
  EXPECT_THAT(refusal("10%%"), HasSubstr("'%%'"));
  EXPECT_THAT(refusal("5-3"), HasSubstr("'-3'"));
}

TEST(Budget, RowsAreWhole) {
  EXPECT_THAT(refusal("512.5"), HasSubstr("whole numbers"));
}

TEST(ResolveBudget, PercentRoundsUp) {
  const BudgetContext context{.n_document = 1001, .n_sink = 0, .n_recent = 0};
  EXPECT_EQ(rows("10%", context), 101);
  EXPECT_EQ(rows("100%", context), 1001);
}

TEST(ResolveBudget, PercentOfARoundNumberIsExact) {
  EXPECT_EQ(rows("1.1%", {.n_document = 3000, .n_recent = 0}), 33);
  for (int percent = 1; percent <= 100; ++percent) {
    EXPECT_EQ(rows(std::to_string(percent) + "%", {.n_document = 12300, .n_recent = 0}),
              123 * percent);
  }
}

TEST(ResolveBudget, PercentHasTheQuestionOnTop) {
  EXPECT_EQ(rows("10%", {.n_document = 1000, .n_extra = 37, .n_sink = 4, .n_recent = 0}), 137);
}

TEST(ResolveBudget, PercentLeavesAtLeastOneRowToChoose) {
  EXPECT_EQ(rows("1%", {.n_document = 10, .n_sink = 4, .n_recent = 8}), 13);
  EXPECT_EQ(rows("0.0001%", {.n_document = 0, .n_sink = 0, .n_recent = 0}), 1);
  // With the default recent window: the smallest that works.
  for (int n_sink = 0; n_sink < 200; ++n_sink) {
    const int budget_rows = rows("1%", {.n_document = 1, .n_sink = n_sink});
    EXPECT_LT(n_sink + default_n_recent(budget_rows), budget_rows);
    EXPECT_GE(n_sink + default_n_recent(budget_rows - 1), budget_rows - 1);
  }
}

TEST(ResolveBudget, BytesAreDividedByAllHeads) {
  const BudgetContext context{.row_bytes = 256, .n_heads = 90, .n_sink = 4, .n_recent = 0};
  EXPECT_EQ(rows("1MiB", context), 1024 * 1024 / (256 * 90));
  EXPECT_EQ(rows("1GB", context), 1000000000 / (256 * 90));
}

TEST(ResolveBudget, BytesForNoRowAreRefusedWithBothNumbers) {
  EXPECT_THAT(refusal("1KB", {.row_bytes = 256, .n_heads = 90, .n_sink = 0, .n_recent = 0}),
              AllOf(HasSubstr("1000 bytes"), HasSubstr("23040 bytes")));
}

TEST(ResolveBudget, HugeBytesAreAllTheRowsThereCanBe) {
  EXPECT_EQ(rows("900000GiB", {.row_bytes = 1, .n_heads = 1}), kMaxBudgetRows);
}

TEST(ResolveBudget, ProtectionThatFillsTheBudgetIsRefusedWithAllNumbers) {
  EXPECT_THAT(refusal("16", {.n_sink = 4, .n_recent = 12}),
              AllOf(HasSubstr("n_sink 4"), HasSubstr("n_recent 12"), HasSubstr("16 rows")));
  EXPECT_EQ(rows("17", {.n_sink = 4, .n_recent = 12}), 17);
  EXPECT_THAT(refusal("16", {.n_sink = 1 << 20, .n_recent = 1 << 24}), HasSubstr("16 rows"));
  EXPECT_THAT(refusal("4KiB", {.row_bytes = 64, .n_heads = 4, .n_sink = 4, .n_recent = 12}),
              AllOf(HasSubstr("n_sink 4"), HasSubstr("n_recent 12"), HasSubstr("16 rows")));
}

TEST(ResolveBudget, OnlySinksCanFillABudgetWithTheDefaultRecentWindow) {
  for (int budget_rows = 1; budget_rows < 300; ++budget_rows) {
    EXPECT_EQ(rows(std::to_string(budget_rows), {.n_sink = 0}), budget_rows);
  }
  EXPECT_THAT(refusal("5", {.n_sink = 4}), AllOf(HasSubstr("n_sink 4"), HasSubstr("quarter")));
  EXPECT_EQ(rows("6", {.n_sink = 4}), 6);
}

TEST(ResolveBudget, DefaultRecentWindowIsAQuarter) {
  EXPECT_EQ(default_n_recent(512), 128);
  EXPECT_EQ(default_n_recent(7), 1);
  EXPECT_EQ(default_n_recent(3), 0);
}

}  // namespace
}  // namespace winnow::policy
