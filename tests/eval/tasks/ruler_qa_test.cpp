// Questions of a data set in SQuAD's or HotpotQA's form, among paragraphs of others.

#include <gtest/gtest.h>

#include <set>

#include "eval/scoring.h"
#include "eval/task_samples.h"
#include "support/error_of.h"

namespace winnow::eval {
namespace {

using test::error_of;

TEST(RulerQa, TheGoldParagraphStandsAmongOthers) {
  std::set<std::string> questions;
  double least = 1;
  double most = 0;
  for (int index = 0; index < 30; ++index) {
    const Sample sample = sample_of("ruler-qa:file=SQUAD", index, 1500);
    ASSERT_EQ(sample.answers[0].size(), 1);  // given twice in the file
    const std::string castle = sample.questions[0].substr(9, sample.questions[0].find('?') - 9);
    const std::string fact =
        "C" + castle.substr(1) + " belongs to " + sample.answers[0][0] + ". It was";
    const double depth = depth_in(sample, fact);
    EXPECT_GE(depth, 0) << fact;
    least = std::min(least, depth);
    most = std::max(most, depth);
    EXPECT_NE(sample.document.find("\n\nDocument 5: "), std::string::npos);
    questions.insert(sample.questions[0]);
  }
  EXPECT_GT(questions.size(), 15);
  EXPECT_LT(least, 0.2);
  EXPECT_GT(most, 0.8);
}

TEST(RulerQa, ReadsHotpotQa) {
  std::string text = "[";
  for (int i = 0; i < 12; ++i) {
    const std::string number = std::to_string(i);
    text += (i == 0 ? "" : ", ") + std::string(R"({"question": "Which town?", "answer": "Town )") +
            number + R"(", "context": [["A)" + number + R"(", ["One fact.", " Another."]], ["B)" +
            number + R"(", ["In Town )" + number + R"( it stands."]]]})";
  }
  const TestFile file("hotpot.json", text + "]");
  const Sample sample = sample_of("ruler-qa:file=" + file.path(), 0, 200);
  EXPECT_TRUE(contains_words(sample.document, sample.answers[0][0]));
  EXPECT_NE(sample.document.find(". One fact. Another."), std::string::npos);
}

TEST(RulerQa, RefusesFilesOfOtherForms) {
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [] { parse_task("ruler-qa"); }),
            "task 'ruler-qa': file=FILE is missing: a data set in SQuAD's or HotpotQA's JSON");
  error_of(ErrorCode::kNotFound, [] { parse_task("ruler-qa:file=/nowhere"); });
  for (const char* text : {"", "{", "{}", "[]", "[1]", "7", "{\"data\": 3}", "{\"data\": []}",
                           "[{\"question\": \"q\", \"answer\": 1, \"context\": []}]", "\"\xff\""}) {
    const TestFile file("broken.json", text);
    error_of(ErrorCode::kBadData, [&] { parse_task("ruler-qa:file=" + file.path()); });
  }
}

}  // namespace
}  // namespace winnow::eval
