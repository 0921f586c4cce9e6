// Questions about JSON and XML: what they ask for is what a parser finds there.

#include "eval/structure_questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace winnow::eval {
namespace {

using nlohmann::ordered_json;
using testing::ElementsAre;

// "question -> answer" of one kind.
std::vector<std::string> asked(const std::vector<StructureQuestion>& questions,
                               StructureKind kind) {
  std::vector<std::string> lines;
  for (const StructureQuestion& each : questions) {
    if (each.kind == kind) {
      lines.push_back(each.question + " -> " + each.answer);
    }
  }
  return lines;
}

TEST(StructureQuestions, AskForWhatStandsAtPathsOfJson) {
  const auto questions = json_questions(ordered_json::parse(
      R"({"a": {"b c": ["x", 2.5, null, true]}, "d": "", "e": "two\nlines", "f": [{"g": -1}, []]})"));
  const std::string end = "? Answer with the value alone. -> ";
  EXPECT_THAT(asked(questions, StructureKind::kValue),
              ElementsAre("What is the value at a[\"b c\"][0]" + end + "x",
                          "What is the value at a[\"b c\"][1]" + end + "2.5",
                          "What is the value at a[\"b c\"][3]" + end + "true",
                          "What is the value at f[0].g" + end + "-1"));
  EXPECT_THAT(
      asked(questions, StructureKind::kCount),
      ElementsAre(
          "How many elements does the array at a[\"b c\"] have? Answer with the number alone. -> 4",
          "How many elements does the array at f have? Answer with the number alone. -> 2"));
  EXPECT_TRUE(json_questions(ordered_json(7)).empty());
}

TEST(StructureQuestions, AskAboutElementsAndAttributesOfXml) {
  const auto questions = xml_questions(
      "n\">\n<!-- <c>no</c> -->\n<port id=\"7\" up='yes'>8080</port>\n<host>a.b</host>"
      "<row k=\"1\"/><row k=\"2\"/>\n<note e=\"\"> two <b>x</b> words<br/>no</note><open");
  EXPECT_THAT(
      asked(questions, StructureKind::kValue),
      ElementsAre("What is the text of the element <b>? Answer with the text alone. -> x",
                  "What is the text of the element <host>? Answer with the text alone. -> a.b",
                  "What is the text of the element <port>? Answer with the text alone. -> 8080"));
  EXPECT_THAT(asked(questions, StructureKind::kCount),
              ElementsAre("How many elements <row> are there? Answer with the number alone. -> 2"));
  const std::string begin = "What is the value of the attribute ";
  const std::string end = " of the element <port>? Answer with the value alone. -> ";
  EXPECT_THAT(asked(questions, StructureKind::kAttribute),
              ElementsAre(begin + "id" + end + "7", begin + "up" + end + "yes"));
}

TEST(StructureQuestions, AskNothingOfXmlThatSaysNothing) {
  for (const char* text : {"", "<", "<a", "<a b", "<a b=", "<a b=\"", "</", "<>", "< a='b'>", "&",
                           "<![CDATA[", "</a></a>", "=\"x\">", "<a><b></b></a>", "a <b c"}) {
    EXPECT_TRUE(xml_questions(text).empty()) << text;
  }
}

TEST(StructureQuestions, AskOnlyForWhatBrokenXmlHolds) {
  EXPECT_THAT(asked(xml_questions("<a><b c='7'>8</b><d>9"), StructureKind::kValue),
              ElementsAre("What is the text of the element <b>? Answer with the text alone. -> 8"));
  EXPECT_THAT(asked(xml_questions("<r><a><a>"), StructureKind::kCount),
              ElementsAre("How many elements <a> are there? Answer with the number alone. -> 2"));
  const std::string whole =
      "<r><port id=\"7\" up='yes'>8080</port><host>a.b</host><row k=\"1\"/><row k=\"2\"/></r>";
  std::mt19937 random(1);
  const auto draw = [&](size_t n) { return random() % n; };
  int n_questions = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text = whole;
    for (size_t n = 1 + draw(4); n > 0; --n) {
      const size_t at = draw(text.size());
      draw(2) == 0 ? text.erase(at, 1 + draw(5)) : text.insert(at, 1, "<>/=\"' x"[draw(8)]);
    }
    for (const StructureQuestion& each : xml_questions(text)) {
      ++n_questions;
      const size_t name_begin = each.question.find('<');
      const std::string element =
          each.question.substr(name_begin, each.question.find('>') - name_begin);
      EXPECT_NE(text.find(element), std::string::npos) << each.question << "\n" << text;
      if (each.kind != StructureKind::kCount) {
        EXPECT_NE(text.find(each.answer), std::string::npos) << each.question << "\n" << text;
      }
    }
  }
  EXPECT_GT(n_questions, 2000) << "a damage leaves most of it whole";
}

TEST(StructureQuestions, PartsAreWhole) {
  const auto document =
      ordered_json::parse(R"({"a": [1, {"b": 2, "c": [3, 4]}, []], "d": {"e": {}, "f": 5}})");
  EXPECT_EQ(n_scalars(document), 7);
  EXPECT_EQ(part_of(document, 0, 7), document);
  EXPECT_EQ(part_of(document, 0, 1), ordered_json::parse(R"({"a": [1]})"));
  EXPECT_EQ(part_of(document, 3, 6),
            ordered_json::parse(R"({"a": [{"c": [4]}, []], "d": {"e": {}}})"));
  EXPECT_EQ(part_of(document, 6, 7), ordered_json::parse(R"({"d": {"f": 5}})"));
  EXPECT_EQ(n_scalars(ordered_json(3)), 1);
}

}  // namespace
}  // namespace winnow::eval
