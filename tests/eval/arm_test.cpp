// Which policies, budgets and modes make which arms.

#include "eval/arm.h"

#include <gtest/gtest.h>

#include "eval/evaluation.h"
#include "support/error_of.h"

namespace winnow::eval {
namespace {

using test::error_of;

std::vector<std::string> specs_of(const std::vector<std::string>& specs,
                                  const std::vector<std::string>& budgets) {
  std::vector<std::string> made;
  for (const policy::Policy& policy : make_policies(specs, budgets)) {
    made.push_back(policy.spec());
  }
  return made;
}

TEST(Arms, EveryPolicyMeetsEveryBudgetAndTheFullCacheComesFirst) {
  EXPECT_EQ(
      specs_of({"knorm", "full", "tova:budget=7,n_recent=0,n_sink=0", "knorm"}, {"10%", "64"}),
      (std::vector<std::string>{"full", "knorm:budget=10%", "knorm:budget=64",
                                "tova:budget=7,n_sink=0,n_recent=0"}));
  EXPECT_EQ(specs_of({}, {}), std::vector<std::string>{"full"});
}

TEST(Arms, APolicyWithoutBudgetIsRefused) {
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [] { specs_of({"knorm"}, {}); }).find("budget"),
            std::string::npos);
  EXPECT_NE(
      error_of(ErrorCode::kInvalidArgument, [] { specs_of({"knrom"}, {"64"}); }).find("knorm"),
      std::string::npos);
}

TEST(Arms, TheFullCacheHasNoMode) {
  const auto arms =
      make_arms(make_policies(std::vector<std::string>{"knorm"}, std::vector<std::string>{"64"}),
                parse_question_modes("both"));
  ASSERT_EQ(arms.size(), 3);
  EXPECT_TRUE(arms[0].is_full());
  EXPECT_EQ(arms[0].question, QuestionMode::kNone);
  EXPECT_EQ(arms[1].question, QuestionMode::kAgnostic);
  EXPECT_EQ(arms[2].question, QuestionMode::kAware);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [] { parse_question_modes("none"); })
                .find("agnostic, aware, both, per-chunk, legacy-order"),
            std::string::npos);
}

TEST(Arms, OnePromptLeavesWhatAllOfThemNeed) {
  const auto arms =
      make_arms(make_policies(std::vector<std::string>{"knorm", "snapkv:obs_window=32", "h2o",
                                                       "tova", "expected-attention"},
                              std::vector<std::string>{"64"}),
                parse_question_modes("aware"));
  const policy::Needs needs = needs_of(arms);
  EXPECT_TRUE(needs.key_norms);
  EXPECT_TRUE(needs.column_mass);
  EXPECT_TRUE(needs.query_moments);
  EXPECT_EQ(needs.n_queries, 32);
}

TEST(Shards, AreWritten1Of4) {
  EXPECT_EQ(parse_shard("2/4").i, 2);
  EXPECT_EQ(parse_shard("2/4").k, 4);
  for (const char* bad : {"", "1", "0/4", "5/4", "1/0", "a/2", "1/2x", "-1/2", "1/99999999999"}) {
    error_of(ErrorCode::kInvalidArgument, [&] { parse_shard(bad); });
  }
}

}  // namespace
}  // namespace winnow::eval
