// Questions about JSON and XML: what they ask for is what a parser finds there.

#include "eval/structure_questions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(StructureQuestions, BrokenXmlIsNoTrouble) {
  for (const char* text : {"", "<", "<a", "<a b", "<a b=", "<a b=\"", "</", "<>", "< a='b'>", "&",
                           "<![CDATA[", "<a><a><a>", "</a></a>", "=\"x\">", "\xff<a>\xfe</a>"}) {
    xml_questions(text);
  }
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
