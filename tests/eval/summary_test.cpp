// Means, differences and warnings from records whose summary is known.

#include "eval/summary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace winnow::eval {
namespace {

Record record(int index, const std::string& policy, double score) {
  Record made;
  made.task = "niah";
  made.n_tokens = 100;
  made.index = index;
  made.question = policy == "full" ? "none" : "aware";
  made.policy = policy;
  made.metrics = {{"score", score}};
  made.kv_bytes = policy == "full" ? 1000 : 250;
  made.kv_full_bytes = 1000;
  made.rows_evicted = policy == "full" ? 0 : 75;
  return made;
}

const Group& group_of(const Summary& summary, const std::string& policy) {
  const auto found = std::ranges::find(summary.groups, policy, &Group::policy);
  EXPECT_NE(found, summary.groups.end()) << policy;
  return *found;
}

bool has_note(const Group& group, const std::string& part) {
  return std::ranges::any_of(
      group.notes, [&](const std::string& note) { return note.find(part) != std::string::npos; });
}

TEST(Summary, ComparesArmsOnTheSamePrompts) {
  std::vector<Record> records;
  for (int index = 0; index < 20; ++index) {
    records.push_back(record(index, "full", 1));
    records.push_back(record(index, "knorm:budget=25", index < 6 ? 1 : 0));
  }
  std::ranges::reverse(records);  // the order does not count
  const Summary summary = summarize(records);
  const Group& full = group_of(summary, "full");
  const Group& knorm = group_of(summary, "knorm:budget=25");
  EXPECT_EQ(full.metrics.at("score").value, 1);
  EXPECT_FALSE(full.to_full);
  EXPECT_EQ(knorm.n, 20);
  EXPECT_DOUBLE_EQ(knorm.metrics.at("score").value, 0.3);
  EXPECT_LT(knorm.metrics.at("score").interval.low, 0.3);
  EXPECT_GT(knorm.metrics.at("score").interval.high, 0.3);
  EXPECT_DOUBLE_EQ(knorm.kept_fraction, 0.25);
  EXPECT_EQ(knorm.rows_evicted, 20 * 75);
  ASSERT_TRUE(knorm.to_full);
  EXPECT_DOUBLE_EQ(knorm.to_full->comparison.difference, -0.7);
  EXPECT_NEAR(knorm.to_full->comparison.p, 2 * std::pow(0.5, 14), 1e-12);  // 14 of 14 one way
  EXPECT_NE(knorm.to_full->verdict.find("lower"), std::string::npos);
  EXPECT_TRUE(knorm.notes.empty());
}

TEST(Summary, TheSamePolicyTwiceDoesNotDiffer) {
  std::vector<Record> records;
  for (int index = 0; index < 10; ++index) {
    records.push_back(record(index, "full", index % 2));
    records.push_back(record(index, "copy", index % 2));
  }
  const Summary summary = summarize(records, "copy");
  const Group& copy = group_of(summary, "copy");
  EXPECT_EQ(copy.to_full->comparison.difference, 0);
  EXPECT_EQ(copy.to_full->p_holm, 1);
  ASSERT_TRUE(group_of(summary, "full").to_baseline == std::nullopt ||
              group_of(summary, "full").to_baseline->comparison.difference == 0);
  EXPECT_FALSE(copy.to_baseline);
}

TEST(Summary, PValuesAreCorrectedForAllArms) {
  std::vector<Record> records;
  for (int index = 0; index < 12; ++index) {
    records.push_back(record(index, "full", 1));
    records.push_back(record(index, "a", index < 4 ? 0 : 1));
    records.push_back(record(index, "b", index < 5 ? 0 : 1));
  }
  const Summary summary = summarize(records);
  EXPECT_DOUBLE_EQ(group_of(summary, "b").to_full->comparison.p, 0.0625);
  EXPECT_DOUBLE_EQ(group_of(summary, "b").to_full->p_holm, 0.125);
  EXPECT_DOUBLE_EQ(group_of(summary, "a").to_full->p_holm, 0.125);
}

TEST(Summary, OnlySamplesThatBothHaveAreCompared) {
  std::vector<Record> records{record(0, "full", 1), record(1, "full", 0), record(1, "a", 0)};
  Record refused = record(0, "a", 0);
  refused.refused = "no room";
  refused.metrics.clear();
  records.push_back(refused);
  const Summary summary = summarize(records);
  const Group& a = group_of(summary, "a");
  EXPECT_EQ(a.n, 1);
  EXPECT_EQ(a.to_full->comparison.n, 1);
  EXPECT_EQ(a.refused, std::vector<std::string>{"no room"});
}

TEST(Summary, LikelihoodsBecomePerplexities) {
  std::vector<Record> records;
  for (int index = 0; index < 3; ++index) {
    Record made = record(index, "full", 0);
    made.metrics = {{"nll", 1.0 + index}, {"kl", 0}};
    records.push_back(made);
  }
  const Summary summary = summarize(records);
  const Mean ppl = group_of(summary, "full").metrics.at("ppl");
  EXPECT_DOUBLE_EQ(ppl.value, std::exp(2.0));
  EXPECT_GE(ppl.interval.low, std::exp(1.0));
  EXPECT_LE(ppl.interval.high, std::exp(3.0) * (1 + 1e-12));
  EXPECT_STREQ(primary_metric(records[0].metrics), "nll");
  EXPECT_STREQ(primary_metric(record(0, "full", 1).metrics), "score");
}

TEST(Guards, AFullCacheThatFailsIsNoComparison) {
  const Summary summary = summarize(std::vector<Record>{record(0, "full", 0.4), record(0, "a", 0)});
  EXPECT_TRUE(has_note(group_of(summary, "full"), "full score under 0.5"));
  EXPECT_TRUE(has_note(group_of(summary, "a"), "full score under 0.5"));
}

TEST(Guards, AnArmThatEvictedNothingIsNoComparison) {
  Record whole = record(0, "a", 1);
  whole.rows_evicted = 0;
  const Summary summary = summarize(std::vector<Record>{record(0, "full", 1), whole});
  EXPECT_TRUE(has_note(group_of(summary, "a"), "no row was evicted"));
  EXPECT_TRUE(group_of(summary, "full").notes.empty());
}

TEST(Guards, BrokenPromisesAreSuspicious) {
  Record over = record(0, "a", 1);
  over.is_within_budget = false;
  Record wrong = record(0, "b", 1);
  wrong.are_positions_true = false;
  Record looped = record(0, "c", 1);
  looped.labels["looped"] = "yes";
  const Summary summary = summarize(std::vector<Record>{record(0, "full", 1), over, wrong, looped});
  EXPECT_TRUE(has_note(group_of(summary, "a"), "guard: budget"));
  EXPECT_TRUE(has_note(group_of(summary, "b"), "guard: positions"));
  EXPECT_TRUE(has_note(group_of(summary, "c"), "guard: looped text"));
}

TEST(Guards, PerplexitiesThatCannotBeAreSuspicious) {
  Record full = record(0, "full", 0);
  full.metrics = {{"nll", std::log(1.24)}};
  Record arm = record(0, "a", 0);
  arm.metrics = {{"nll", std::log(4624.0)}};
  const Summary summary = summarize(std::vector<Record>{full, arm});
  EXPECT_TRUE(has_note(group_of(summary, "full"), "perplexity under 2"));
  EXPECT_TRUE(has_note(group_of(summary, "a"), "perplexity ratio"));
}

}  // namespace
}  // namespace winnow::eval
