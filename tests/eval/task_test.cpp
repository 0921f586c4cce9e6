// What a perfect answer to a sample's question reads like.

#include "eval/task.h"

#include <gtest/gtest.h>

namespace winnow::eval {
namespace {

TEST(GoldText, IsTheFirstSpellingOrTheListOfAllThatIsAskedFor) {
  Sample sample;
  sample.questions = {"where?", "which?"};
  sample.answers = {{"Oslo", "Oslo, Norway"}, {"7", "12", "3"}};
  EXPECT_EQ(gold_text(sample, 0), "Oslo");
  sample.rule = AnswerRule::kAll;
  EXPECT_EQ(gold_text(sample, 1), "7, 12, 3");
}

}  // namespace
}  // namespace winnow::eval
