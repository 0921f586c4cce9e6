// Questions about any file: their answers stand in it, and only once.

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "eval/document_questions.h"
#include "eval/scoring.h"
#include "eval/task_samples.h"
#include "support/error_of.h"

namespace winnow::eval {
namespace {

using test::error_of;

std::vector<std::string> answers_of(const std::vector<DocumentQuestion>& questions) {
  std::vector<std::string> answers;
  for (const DocumentQuestion& each : questions) {
    answers.push_back(each.answer);
  }
  return answers;
}

TEST(DocumentQuestions, ClozeLeavesOutWordsThatStandThereOnce) {
  const auto questions = cloze_questions(
      "The harbour was quiet that morning. Nobody in the harbour had seen\nthe schooner arrive.");
  EXPECT_EQ(answers_of(questions),
            (std::vector<std::string>{"quiet", "morning", "schooner", "arrive"}));
  EXPECT_NE(questions[2].question.find("Nobody in the harbour had seen the ____ arrive."),
            std::string::npos);
  std::string log;
  for (int i = 0; i < 100; ++i) {
    log += "again and again ";
  }
  const auto in_long = cloze_questions(log + "except " + log);
  ASSERT_EQ(answers_of(in_long), (std::vector<std::string>{"except"}));
  EXPECT_LT(in_long[0].question.size(), 300);
  EXPECT_TRUE(cloze_questions("").empty());
  EXPECT_TRUE(cloze_questions("Too short altogether.").empty());
}

TEST(DocumentQuestions, LookupsReadJsonYamlIniAndHeaders) {
  const std::string text =
      "{\"name\": \"Ada\", \"age\": 36, \"tags\": [1], \"note\":\"x,y\"}\n"
      "colour: blue\n  - depth: 4.5\nport = 8080\ntwice: 1\ntwice: 2\n"
      "He said: nothing\nurl:none\nempty:\n";
  const auto questions = lookup_questions(text);
  EXPECT_EQ(answers_of(questions),
            (std::vector<std::string>{"Ada", "36", "x,y", "blue", "4.5", "8080"}));
  for (const DocumentQuestion& each : questions) {
    EXPECT_EQ(text.substr(each.place, each.answer.size()), each.answer);
  }
}

TEST(DocumentQuestions, BrokenTextIsNoTrouble) {
  for (const char* text :
       {"\":", "\"\": ", "\"a\":", "\"a\": \"", "a =", "= b", "\"a\":\"b",
        ": : :", "\"a\" \":\":1}", "\n\n\n", "____ ____ ____ ____ ____ ____ ____"}) {
    lookup_questions(text);
    cloze_questions(text);
    quote_questions(text);
  }
}

TEST(DocumentQuestions, QuotesBeginAsNoOtherSentence) {
  const std::string begin = "one two three four five six seven eight ";
  EXPECT_EQ(
      answers_of(quote_questions(begin + "nine ten eleven twelve thirteen fourteen fifteen.")),
      (std::vector<std::string>{"nine ten eleven twelve thirteen fourteen"}));
  EXPECT_TRUE(quote_questions(begin + "nine ten eleven twelve thirteen fourteen. " + begin +
                              "and so on for long enough to ask.")
                  .empty());
}

TEST(Doc, AnswersStandInThePartThatIsShown) {
  for (const char* kind : {"cloze", "lookup", "quote"}) {
    for (int index = 0; index < 12; ++index) {
      const Sample sample = sample_of("doc:file=FILE,questions=3,kind=" + std::string(kind), index);
      ASSERT_EQ(sample.questions.size(), 3);
      for (const std::vector<std::string>& gold : sample.answers) {
        EXPECT_TRUE(contains_words(sample.document, gold[0])) << gold[0];
      }
    }
  }
}

TEST(Doc, TakesKindsInTurn) {
  const std::string first = sample_of("doc:file=FILE", 0).questions[0];
  EXPECT_NE(first.find("What is the value"), std::string::npos);
  EXPECT_NE(sample_of("doc:file=FILE", 1).questions[0].find("One word is missing"),
            std::string::npos);
  EXPECT_NE(sample_of("doc:file=FILE", 2).questions[0].find("A sentence of the document"),
            std::string::npos);
}

TEST(Doc, ReadsAllOfAFileWhereNoLengthIsAsked) {
  const Sample sample = sample_of("doc:file=FILE", 0, 0);
  EXPECT_NE(sample.document.find("setting_0 "), std::string::npos);
  EXPECT_NE(sample.document.find("setting_399 "), std::string::npos);
}

TEST(Doc, SamplesShowDifferentParts) {
  EXPECT_NE(sample_of("doc:file=FILE", 0).document, sample_of("doc:file=FILE", 1).document);
}

TEST(Doc, RefusesWhatItCannotAskAbout) {
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [] { parse_task("doc"); }),
            "task 'doc': file=FILE is missing: the document to ask about");
  error_of(ErrorCode::kNotFound, [] { parse_task("doc:file=/nowhere/at/all"); });
  const TestFile file("plain.txt", "");
  const std::string& path = file.path();
  std::ofstream(path) << "yes no yes no";
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { sample_of("doc:file=" + path, 0, 0); })
                .find("gives no question of kind mixed"),
            std::string::npos);
  std::ofstream(path) << "The only sentence here has an unusual word.";
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { sample_of("doc:file=" + path, 0, 1000); })
                .find("ends too early"),
            std::string::npos);
  std::ofstream(path) << "caf\xe9";
  error_of(ErrorCode::kBadData, [&] { parse_task("doc:file=" + path); });
}

TEST(Doc, CutsNoCharacterAndHasTheLengthWithoutSpaces) {
  std::string text;
  for (int i = 0; i < 3000; ++i) {
    text += "\xe6\xb0\xb4";
    text += i % 50 == 0 ? "\nkey_" + std::to_string(i) + ": v" + std::to_string(i) + "\n" : "";
  }
  const TestFile file("wide.txt", text);
  for (int index = 0; index < 8; ++index) {
    const Sample sample = sample_of("doc:kind=lookup,file=" + file.path(), index);
    size_t n_ascii = 0;
    size_t n_lead = 0;
    size_t n_other = 0;
    for (const char c : sample.document) {
      const auto byte = static_cast<unsigned char>(c);
      (byte < 0x80 ? n_ascii : byte >= 0xc0 ? n_lead : n_other)++;
    }
    EXPECT_EQ(n_other, 2 * n_lead);
  }
}

}  // namespace
}  // namespace winnow::eval
