// Look-ups in structured documents: what is asked for is what a parser finds there.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "eval/scoring.h"
#include "eval/task_samples.h"
#include "support/error_of.h"

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;
using test::error_of;
using testing::HasSubstr;
using testing::StartsWith;

std::string path_of(const Sample& sample) {
  const std::string begin = "What is the value at ";
  return sample.questions[0].substr(begin.size(), sample.questions[0].find('?') - begin.size());
}

TEST(Schema, AsksForWhatStandsAtThePath) {
  std::set<std::string> depths;
  for (const char* format : {"json", "compact"}) {
    for (int index = 0; index < 40; ++index) {
      const Sample sample = sample_of("schema:format=" + std::string(format), index);
      std::string pointer = "/" + path_of(sample);
      std::ranges::replace(pointer, '.', '/');
      const ordered_json document = ordered_json::parse(sample.document);
      EXPECT_EQ(document.at(ordered_json::json_pointer(pointer)), sample.answers[0][0]);
      depths.insert(sample.labels.at("depth"));
    }
  }
  EXPECT_EQ(depths.size(), 10);
  EXPECT_TRUE(depths.contains("0.0"));
  EXPECT_TRUE(depths.contains("0.9"));
}

TEST(Schema, EveryFormatHoldsTheAnswerBehindItsNames) {
  for (const char* format : {"xml", "xml-attributes", "yaml", "csv", "markdown"}) {
    for (int index = 0; index < 10; ++index) {
      const Sample sample = sample_of("schema:format=" + std::string(format), index);
      const std::string path = path_of(sample);
      size_t at = 0;
      for (size_t begin = 0; begin <= path.size(); begin = path.find('.', begin) + 1) {
        const std::string name = path.substr(begin, path.find('.', begin) - begin);
        at = sample.document.find(name, at);
        ASSERT_NE(at, std::string::npos) << format << ": " << name;
        if (path.find('.', begin) == std::string::npos) {
          break;
        }
      }
      EXPECT_NE(sample.document.find(sample.answers[0][0], at), std::string::npos);
    }
  }
}

TEST(Schema, ScoresTheValueAlone) {
  Sample sample = sample_of("schema");
  sample.answers = {{"a1b2c3"}};
  EXPECT_EQ(score_of("schema", sample, "\"a1b2c3\"."), 1);
  EXPECT_EQ(score_of("schema", sample, "The value is a1b2c3"), 0);
  EXPECT_EQ(parse_task("schema").task->score(sample, 0, "It is a1b2c3.").secondary.at("contained"),
            1);
  EXPECT_EQ(score_of("schema", sample, "a1b2c"), 0);
}

TEST(Schema, RefusesLengthsBeyondAllNames) {
  EXPECT_THAT(
      error_of(ErrorCode::kInvalidArgument, [] { sample_of("schema:format=csv", 0, 4000000); }),
      HasSubstr("the object of all names ends too early"));
}

TEST(SchemaDoc, AsksForWhatAParserFindsInThePart) {
  for (int index = 0; index < 20; ++index) {
    const Sample sample = sample_of("schema-doc:file=RECORDS,kind=value", index);
    const ordered_json document = ordered_json::parse(sample.document);
    std::string pointer;
    for (const char c : path_of(sample)) {
      pointer += c == '[' || c == '.' ? "/" : c == ']' ? "" : std::string(1, c);
    }
    const ordered_json& found =
        document.at(ordered_json::json_pointer(pointer.starts_with('/') ? pointer : "/" + pointer));
    EXPECT_EQ(found.is_string() ? found.get<std::string>() : found.dump(), sample.answers[0][0]);
  }
}

TEST(SchemaDoc, TakesKindsInTurn) {
  EXPECT_THAT(sample_of("schema-doc:file=RECORDS", 0).questions[0],
              StartsWith("What is the value at"));
  EXPECT_THAT(sample_of("schema-doc:file=RECORDS", 1).questions[0], StartsWith("How many "));
  EXPECT_THAT(sample_of("schema-doc:file=ELEMENTS,kind=attribute").questions[0],
              StartsWith("What is the value of the attribute"));
}

TEST(SchemaDoc, PartsLieEverywhere) {
  std::set<std::string> beginnings;
  for (int index = 0; index < 12; ++index) {
    beginnings.insert(sample_of("schema-doc:file=ELEMENTS", index).document.substr(0, 60));
  }
  EXPECT_GT(beginnings.size(), 8);
}

TEST(SchemaDoc, RefusesWhatItCannotAskAbout) {
  EXPECT_EQ(error_of(ErrorCode::kInvalidArgument, [] { parse_task("schema-doc"); }),
            "task 'schema-doc': file=FILE is missing: the document to ask about");
  error_of(ErrorCode::kNotFound, [] { parse_task("schema-doc:file=/nowhere"); });
  const std::string deep = std::string(100000, '[') + std::string(100000, ']');
  for (const std::string& text :
       std::vector<std::string>{"", " ", "plain", "{", "[1", "{\"a\" 1}", "\xff", deep}) {
    const TestFile file("broken.txt", text);
    error_of(ErrorCode::kBadData, [&] { parse_task("schema-doc:file=" + file.path()); });
  }
  for (const char* text : {"{}", "[]", "[null, [], {}]", "<a>", "<"}) {
    const TestFile file("empty.txt", text);
    error_of(ErrorCode::kInvalidArgument, [&] { sample_of("schema-doc:file=" + file.path()); });
  }
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [] { sample_of("schema-doc:file=RECORDS,kind=attribute"); }),
              HasSubstr("gives no question of kind attribute"));
}

TEST(Wikitable, TheTableStandsAmongOthersAndTheQuestionOnce) {
  double least = 1;
  double most = 0;
  for (int index = 0; index < 30; ++index) {
    const Sample sample = sample_of("wikitable:file=TABLES", index);
    // "... who owns boat 7?" has the answer in the row of boat 7.
    const size_t boat = sample.questions[0].find("boat ");
    ASSERT_NE(boat, std::string::npos);
    const std::string name = sample.questions[0].substr(boat, sample.questions[0].find('?') - boat);
    const std::string row = "| " + name + " | " + sample.answers[0][0] + " |";
    const double depth = depth_in(sample, row);
    EXPECT_GE(depth, 0) << row;
    least = std::min(least, depth);
    most = std::max(most, depth);
    EXPECT_EQ(sample.document.find('?'), std::string::npos);
  }
  EXPECT_LT(least, 0.2);
  EXPECT_GT(most, 0.7);
}

TEST(Wikitable, ReadsItsEscapes) {
  const TestFile table("one.csv", "\"a \\\"b\\\"\",\"c|d\"\n\"x\ny\",z\nshort\n");
  const std::string name = table.path().substr(table.path().rfind('/') + 1);
  const TestFile list("list.tsv", "id\tutterance\tcontext\ttargetValue\nq-1\twhich \\p?\t" + name +
                                      "\tone\\ntwo|th\\\\ree\n");
  const auto parsed = parse_task("wikitable:file=" + list.path());
  // A list of one table has nothing to fill a prompt with but itself.
  const Sample sample = parsed.task->make(request_of(0, 75));
  EXPECT_EQ(sample.document, "| a \"b\" | c/d |\n| --- | --- |\n| x y | z |\n| short |  |");
  EXPECT_THAT(sample.questions[0], HasSubstr("which |?"));
  EXPECT_EQ(sample.answers[0], (std::vector<std::string>{"one\ntwo", "th\\ree"}));
  EXPECT_EQ(sample.rule, AnswerRule::kAll);
}

TEST(Wikitable, RefusesFilesOfOtherForms) {
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [] { parse_task("wikitable"); }),
              HasSubstr("file=FILE is missing"));
  error_of(ErrorCode::kNotFound, [] { parse_task("wikitable:file=/nowhere"); });
  const std::string head = "id\tutterance\tcontext\ttargetValue\n";
  for (const std::string& text : {std::string(), std::string("a\tb"), head, head + "one\ttwo\n"}) {
    const TestFile file("broken.tsv", text);
    error_of(ErrorCode::kBadData, [&] { parse_task("wikitable:file=" + file.path()); });
  }
  const TestFile file("lost.tsv", head + "q\tu\tno/such.csv\tv\n");
  error_of(ErrorCode::kNotFound, [&] { parse_task("wikitable:file=" + file.path()); });
}

}  // namespace
}  // namespace winnow::eval
