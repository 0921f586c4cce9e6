// cwe and fwe: the gold answers are the most frequent words, by counting.

#include <gtest/gtest.h>

#include <map>

#include "eval/scoring.h"
#include "eval/task_samples.h"

namespace winnow::eval {
namespace {

// How often each word stands in the text, as split at spaces.
std::map<std::string, int> counts_in(const std::string& text) {
  std::map<std::string, int> counts;
  std::string word;
  for (const char c : text + " ") {
    if (c == ' ') {
      ++counts[word];
      word.clear();
    } else {
      word += c;
    }
  }
  return counts;
}

// The list, without instruction and example.
std::string list_of(const Sample& sample) {
  return sample.document.substr(sample.document.rfind("\n\n") + 2);
}

void expect_gold_counts(const Sample& sample, int least, int most_of_others) {
  std::map<std::string, int> counts = counts_in(list_of(sample));
  for (const std::string& word : sample.pool) {
    const bool is_gold = std::ranges::find(sample.answers[0], word) != sample.answers[0].end();
    if (is_gold) {
      EXPECT_GE(counts[word], least) << word;
    } else {
      EXPECT_LE(counts[word], most_of_others) << word;
    }
  }
}

TEST(Cwe, CommonWordsComeAsOftenAsPublished) {
  for (const int n_tokens : {700, 1024, 3000}) {
    const Sample sample = sample_of("cwe", 2, n_tokens);
    EXPECT_EQ(sample.answers[0].size(), 10);
    expect_gold_counts(sample, 6, 1);
  }
  for (const int n_tokens : {4096, 12000}) {
    expect_gold_counts(sample_of("cwe", 2, n_tokens), 30, 3);
  }
  EXPECT_EQ(sample_of("cwe:common=3").answers[0].size(), 3);
}

TEST(Cwe, TheExampleIsAnother) {
  const Sample sample = sample_of("cwe");
  const std::string example = sample.document.substr(0, sample.document.rfind("\n\n"));
  EXPECT_NE(example.find("Example: 1. "), std::string::npos);
  EXPECT_LT(contained_share(example, sample.answers[0]), 0.5);
  EXPECT_EQ(sample_of("cwe:example=false").document.find("Example"), std::string::npos);
}

TEST(Fwe, FrequenciesFallAsAPowerOfTheRank) {
  const Sample sample = sample_of("fwe", 0, 4000);
  std::map<std::string, int> counts = counts_in(list_of(sample));
  const int n_second = counts[sample.answers[0][0]];
  EXPECT_NEAR(counts["..."], 4 * n_second, 4);
  EXPECT_NEAR(counts[sample.answers[0][1]], n_second * 4 / 9.0, 1);
  EXPECT_NEAR(counts[sample.answers[0][2]], n_second / 4.0, 1);
  EXPECT_EQ(sample.pool.size(), 4000 / 50 - 1);
  for (const int n_tokens : {500, 1000, 4000}) {
    const Sample other = sample_of("fwe", 1, n_tokens);
    const int least = counts_in(list_of(other))[other.answers[0][2]];
    expect_gold_counts(other, least, least - 1);
  }
}

TEST(WordLists, ScorePartlyRightAnswers) {
  const ParsedTask parsed = parse_task("fwe");
  const Sample sample = sample_of("fwe");
  const Score score = parsed.task->score(
      sample, 0, sample.answers[0][0] + ", " + sample.pool.back() + ", innovation");
  EXPECT_EQ(score.primary, 0);
  EXPECT_DOUBLE_EQ(score.secondary.at("contained"), 1.0 / 3);
  EXPECT_DOUBLE_EQ(score.secondary.at("recall_precision"), 1.0 / 3 * 0.5);
}

}  // namespace
}  // namespace winnow::eval
