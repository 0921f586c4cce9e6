// json-out and rules: tasks in which the form of an answer counts.

#include <gtest/gtest.h>

#include <set>

#include "eval/scoring.h"
#include "eval/task_samples.h"

namespace winnow::eval {
namespace {

TEST(JsonOut, TheRecordStandsInTheDocumentAtItsDepth) {
  for (int index = 0; index < 10; ++index) {
    const Sample sample = sample_of("json-out", index, 3000);
    const std::string& gold = sample.answers[0][0];
    const size_t name_at = gold.find(":\"") + 2;
    const std::string name = gold.substr(name_at, gold.find('"', name_at) - name_at);
    EXPECT_NEAR(depth_in(sample, "The item \"" + name + "\" has"), index / 9.0, 0.03) << gold;
    EXPECT_NE(sample.questions[0].find(name), std::string::npos);
  }
}

TEST(JsonOut, ScoresFormAndFields) {
  const ParsedTask parsed = parse_task("json-out");
  Sample sample = sample_of("json-out");
  sample.answers = {
      {R"({"name":"odd-otter","label":"maple","weight":250,"finish":"shiny","in_stock":false})"}};
  const auto score = [&](const std::string& answer) {
    return parsed.task->score(sample, 0, answer);
  };
  const std::string gold = sample.answers[0][0];
  EXPECT_EQ(score("\n```json\n" + gold + "\n```\n").primary, 1);
  EXPECT_EQ(
      score(
          R"({ "in_stock": false, "weight": 250.0, "finish":"shiny", "label":"maple", "name":"odd-otter" })")
          .primary,
      1);

  const Score wrong =
      score(R"({"name":"odd-otter","label":"maple","weight":"250","finish":"dull"})");
  EXPECT_EQ(wrong.primary, 0);
  EXPECT_EQ(wrong.secondary.at("valid"), 1);
  EXPECT_DOUBLE_EQ(wrong.secondary.at("fields"), 0.4);
  EXPECT_GT(wrong.secondary.at("unseen"), 0);  // dull

  EXPECT_EQ(score(gold.substr(0, gold.size() - 1) + R"(,"more":1})").primary, 0);
  for (const std::string& broken :
       {gold.substr(0, 40), "Here it is: " + gold, gold + " Anything else?", std::string("```"),
        std::string("```json\n```"), std::string(5000, '[')}) {
    EXPECT_EQ(score(broken).primary, 0) << broken;
    EXPECT_EQ(score(broken).secondary.at("valid"), 0) << broken;
  }
  EXPECT_EQ(score("[]").secondary.at("valid"), 1);
  EXPECT_EQ(score("[]").secondary.at("fields"), 0);
}

Score rules_score(const std::string& rules, const std::string& answer) {
  Sample sample;
  sample.questions = {""};
  sample.labels["rules"] = rules;
  return parse_task("rules").task->score(sample, 0, answer);
}

TEST(Rules, EachIsChecked) {
  const std::string answer = "Otter: the lamp shines. It is warm! Good, maple.";
  struct Case {
    const char* rule;
    bool is_followed;
  };
  for (const Case& each : {Case{"begin=otter", true},
                           {"begin=lamp", false},
                           {"end=maple", true},
                           {"end=warm", false},
                           {"mention=lamp", true},
                           {"mention=lam", false},
                           {"avoid=of", true},
                           {"avoid=the", false},
                           {"lower", false},
                           {"sentences=3", true},
                           {"sentences=2", false},
                           {"words=9", true},
                           {"words=8", false}}) {
    EXPECT_EQ(rules_score(each.rule, answer).primary, each.is_followed ? 1 : 0) << each.rule;
  }
  EXPECT_EQ(rules_score("lower", "all small").primary, 1);
}

TEST(Rules, TheShareAndEachRuleAreReported) {
  const Score score = rules_score("begin=otter;lower;avoid=the;words=3", "Otter sleeps");
  EXPECT_DOUBLE_EQ(score.primary, 0.75);
  EXPECT_EQ(score.secondary.at("begin"), 1);
  EXPECT_EQ(score.secondary.at("lower"), 0);
  EXPECT_EQ(score.secondary.at("all"), 0);
}

TEST(Rules, StandBeforeTheTextAndCanBeFollowedTogether) {
  std::set<std::string> seen;
  for (int index = 0; index < 60; ++index) {
    for (int n = 1; n <= 7; ++n) {
      const std::string spec = "rules:rules=" + std::to_string(n);
      const Sample sample = sample_of(spec, index, 300);
      EXPECT_EQ(score_of(spec, sample, sample.answers[0][0]), 1)
          << sample.labels.at("rules") << ": " << sample.answers[0][0];
      EXPECT_EQ(std::ranges::count(sample.document.substr(0, sample.document.find("\n\n")), '\n'),
                n);
      seen.insert(sample.labels.at("rules"));
    }
  }
  EXPECT_GT(seen.size(), 300);
  EXPECT_EQ(sample_of("rules:questions=6").questions.size(), 6);
}

}  // namespace
}  // namespace winnow::eval
