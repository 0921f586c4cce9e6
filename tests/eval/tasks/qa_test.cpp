// The answer takes both facts, and each stands in the document once.

#include <gtest/gtest.h>

#include "eval/scoring.h"
#include "eval/task_samples.h"

namespace winnow::eval {
namespace {

std::string between(const std::string& text, const std::string& begin, const std::string& end) {
  const size_t from = text.find(begin) + begin.size();
  return text.substr(from, text.find(end, from) - from);
}

TEST(Qa, TheTwoFactsLeadToTheAnswer) {
  for (int index = 0; index < 20; ++index) {
    const Sample sample = sample_of("qa:distractors=7", index);
    const std::string person = between(sample.questions[0], "place where ", " lives?");
    const std::string town = between(sample.document, person + " lives in ", ".");
    const std::string instrument =
        between(sample.document, "town hall of " + town + " is a kind of ", ".");
    EXPECT_EQ(instrument, sample.answers[0][0]);
    EXPECT_EQ(sample.questions[0].find(town), std::string::npos);
    EXPECT_FALSE(contains_words(sample.questions[0], instrument));
  }
}

TEST(Qa, FactsStandAtTheirDepths) {
  for (int index = 0; index < 10; ++index) {
    const Sample sample = sample_of("qa", index, 3000);
    const std::string person = between(sample.questions[0], "place where ", " lives?");
    EXPECT_NEAR(depth_in(sample, person + " lives"), index / 9.0, 0.03);
    EXPECT_NEAR(depth_in(sample, "kind of " + sample.answers[0][0]),
                std::stod(sample.labels.at("second_depth")), 0.03);
  }
}

TEST(Qa, ScoresWrongAndPartlyRightAnswers) {
  const ParsedTask parsed = parse_task("qa");
  const Sample sample = sample_of("qa");
  const std::string& gold = sample.answers[0][0];
  const Score sentence = parsed.task->score(sample, 0, "It is a " + gold);
  EXPECT_EQ(sentence.primary, 0);
  EXPECT_EQ(sentence.secondary.at("contained"), 1);
  EXPECT_EQ(sentence.secondary.at("f1"), 0.5);  // it, is, gold: 2 * 1 / (3 + 1)
  EXPECT_EQ(parsed.task->score(sample, 0, "theremin").secondary.at("unseen"), 1);
}

}  // namespace
}  // namespace winnow::eval
