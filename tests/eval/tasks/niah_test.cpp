// Needles stand where they should, questions ask for them, and paraphrased ones give nothing away.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "eval/haystack.h"
#include "eval/scoring.h"
#include "eval/task_samples.h"
#include "eval/words.h"
#include "support/error_of.h"

namespace winnow::eval {
namespace {

using test::error_of;

TEST(Niah, TheFactStandsAtTheDepthOfTheSample) {
  for (const char* spec : {"niah", "niah:haystack=repeat", "niah:haystack=needles,keys=3",
                           "niah:type=paraphrased,keys=6"}) {
    for (int index = 0; index < 10; ++index) {
      const Sample sample = sample_of(spec, index, 3000);
      const double depth = index / 9.0;
      EXPECT_NEAR(depth_in(sample, sample.answers[0][0]), depth, 0.03) << spec;
    }
  }
  EXPECT_EQ(sample_of("niah:depths=1,depth=0.25").labels.at("depth"), "0.25");
  EXPECT_EQ(sample_of("niah", 12).labels.at("depth"), "0.22");  // 12 % 10 of nine steps
}

TEST(Niah, HoldsAsManyFactsAsAsked) {
  const Sample keys = sample_of("niah:keys=4,depths=1");
  size_t n_facts = 0;
  for (size_t at = 0; (at = keys.document.find("access number of", at)) != std::string::npos;
       ++at) {
    ++n_facts;
  }
  EXPECT_EQ(n_facts, 4);
  EXPECT_EQ(keys.answers[0].size(), 1);
  EXPECT_EQ(sample_of("niah:values=3").answers[0].size(), 3);
  EXPECT_EQ(sample_of("niah:keys=2,queries=3,values=2").answers[0].size(), 6);
}

TEST(Niah, ScoresWrongAndPartlyRightAnswers) {
  const std::string spec = "niah:values=2";
  const Sample sample = sample_of(spec);
  const std::string& first = sample.answers[0][0];
  const std::string& second = sample.answers[0][1];
  EXPECT_EQ(score_of(spec, sample, second + " and " + first), 1);
  const Score half = parse_task(spec).task->score(sample, 0, "They are " + first + " and 77.");
  EXPECT_EQ(half.primary, 0);
  EXPECT_EQ(half.secondary.at("contained"), 0.5);
  EXPECT_DOUBLE_EQ(half.secondary.at("unseen"), 0.2);  // 77
}

TEST(Niah, TurnsAskForDifferentFacts) {
  const Sample sample = sample_of("niah:turns=3,queries=2,keys=8");
  ASSERT_EQ(sample.questions.size(), 3);
  std::set<std::string> gold;
  for (size_t turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(sample.answers[turn].size(), 2);
    gold.insert(sample.answers[turn].begin(), sample.answers[turn].end());
    EXPECT_EQ(score_of("niah:turns=3", sample, gold_text(sample, static_cast<int>(turn)),
                       static_cast<int>(turn)),
              1);
    for (const std::string& value : sample.answers[turn]) {
      EXPECT_GE(depth_in(sample, value), 0);
    }
  }
  EXPECT_EQ(gold.size(), 6);
  EXPECT_EQ(sample_of("multiturn").questions.size(), 6);
}

std::set<std::string> content_words(const std::string& text) {
  static const std::set<std::string> without_content = {
      "a",    "all", "an",   "and",  "answer", "are",  "be",    "by",  "did",  "do",   "does",
      "due",  "far", "for",  "from", "has",    "have", "her",   "how", "if",   "in",   "is",
      "into", "it",  "kept", "long", "many",   "much", "of",    "on",  "our",  "that", "the",
      "this", "to",  "was",  "were", "what",   "when", "where", "who", "with", "a",    "numeral"};
  std::set<std::string> words;
  for (const std::string& word : words_of(text)) {
    if (!without_content.contains(word)) {
      words.insert(word.substr(0, 5));  // "clock" and "clocks" are the same
    }
  }
  return words;
}

TEST(Niah, ParaphrasedQuestionsShareNoContentWordWithTheirFact) {
  std::set<std::string> questions;
  for (int index = 0; index < 200; ++index) {
    const Sample sample = sample_of("niah:type=paraphrased,haystack=repeat", index, 200);
    const std::string& value = sample.answers[0][0];
    const std::vector<std::string> sentences = split_sentences(sample.document);
    const auto fact = std::ranges::find_if(
        sentences, [&](const std::string& each) { return contains_words(each, value); });
    ASSERT_NE(fact, sentences.end());
    const std::set<std::string> asked = content_words(sample.questions[0]);
    EXPECT_GE(asked.size(), 2) << sample.questions[0];
    for (const std::string& word : content_words(*fact)) {
      EXPECT_FALSE(asked.contains(word)) << word << ": " << *fact << " / " << sample.questions[0];
    }
    questions.insert(sample.questions[0]);
  }
  EXPECT_EQ(questions.size(), 12);
}

TEST(Niah, RefusesOptionsThatContradictEachOther) {
  for (const char* spec :
       {"niah:type=paraphrased,values=2", "niah:type=paraphrased,keys=13",
        "niah:type=paraphrased,haystack=needles", "niah:type=word,keys=64,values=16"}) {
    EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { parse_task(spec); }), "") << spec;
  }
}

// A folder of its own, removed at the end.
class NiahEssays : public testing::Test {
 protected:
  NiahEssays() : folder_(std::filesystem::path(testing::TempDir()) / "winnow_essays") {
    std::filesystem::create_directories(folder_);
  }
  ~NiahEssays() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }

  std::filesystem::path folder_;
};

TEST_F(NiahEssays, ReadsAFileOrAFolder) {
  std::string essay;
  for (int i = 0; i < 80; ++i) {
    essay += "Sentence " + nouns()[static_cast<size_t>(i)] + " of an essay\nruns on. ";
  }
  const std::string path = write("a.txt", essay);
  const Sample sample = sample_of("niah:haystack=" + path, 0, 500);
  EXPECT_NE(sample.document.find("of an essay runs on. "), std::string::npos);
  EXPECT_EQ(sample.document, sample_of("niah:haystack=" + folder_.string(), 0, 500).document);

  const std::string error =
      error_of(ErrorCode::kInvalidArgument, [&] { sample_of("niah:haystack=" + path, 0, 5000); });
  EXPECT_NE(error.find("the haystack ends too early"), std::string::npos) << error;
}

TEST_F(NiahEssays, RefusesFilesThatAreMissingEmptyOrNoText) {
  error_of(ErrorCode::kNotFound,
           [&] { parse_task("niah:haystack=" + (folder_ / "none.txt").string()); });
  error_of(ErrorCode::kInvalidArgument,
           [&] { parse_task("niah:haystack=" + write("b.txt", " \n ")); });
  error_of(ErrorCode::kBadData,
           [&] { parse_task("niah:haystack=" + write("c.txt", "caf\xe9 ol\xe9.")); });
}

TEST(Haystack, SplitsProseIntoSentences) {
  EXPECT_EQ(split_sentences("One line\n  goes on. \"Who?\" he asked! (Nobody.)  3.5 is no end\n"),
            (std::vector<std::string>{"One line goes on.", "\"Who?\"", "he asked!", "(Nobody.)",
                                      "3.5 is no end"}));
  EXPECT_TRUE(split_sentences(" \n").empty());
}

TEST(Haystack, PutsFactsWhereTheyBelong) {
  const std::vector<std::string> filler = {"a1.", "b2.", "c3.", "d4."};
  const std::vector<std::string> facts = {"HALF.", "START.", "END.", "HALF2."};
  const std::vector<double> places = {0.5, 0, 1, 0.5};
  EXPECT_EQ(with_facts(filler, facts, places), "START. a1. b2. HALF. HALF2. c3. d4. END.");
  EXPECT_EQ(with_facts({}, facts, places), "START. HALF. HALF2. END.");
}

TEST(Words, AreDifferentAndInOrder) {
  std::set<std::string> all(nouns().begin(), nouns().end());
  all.insert(adjectives().begin(), adjectives().end());
  EXPECT_EQ(all.size(), nouns().size() + adjectives().size());
  EXPECT_TRUE(std::ranges::is_sorted(nouns()));
  EXPECT_TRUE(std::ranges::is_sorted(adjectives()));
  EXPECT_EQ(word_pair(0), adjectives().front() + "-" + nouns().front());
  EXPECT_EQ(word_pair(n_word_pairs() - 1), adjectives().back() + "-" + nouns().back());
  for (const std::string& sentence : bland_sentences()) {
    for (const std::string& word : words_of(sentence)) {
      EXPECT_FALSE(all.contains(word)) << word;
    }
  }
}

}  // namespace
}  // namespace winnow::eval
