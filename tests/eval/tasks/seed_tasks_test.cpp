// The *-seed tasks draw what the published scripts draw: expected values were printed by python3.11 with
// random.Random(1024 * 100 + 2 + offset) and the calls in the order that each task's file states, over winnow's words.

#include <gtest/gtest.h>

#include "eval/scoring.h"
#include "eval/seed_recipe.h"
#include "eval/task_samples.h"

namespace winnow::eval {
namespace {

using Strings = std::vector<std::string>;

Sample third_of_1024(const std::string& spec) {
  return sample_of(spec, 2, 1024, 0);
}

bool has(const Sample& sample, const std::string& text) {
  return sample.document.find(text) != std::string::npos;
}

TEST(SeedTasks, VtDrawsThePublishedChains) {
  const Sample sample = third_of_1024("vt-seed");
  EXPECT_EQ(sample.pool, (Strings{"X316", "X12", "X683", "X997", "X360", "X681"}));
  EXPECT_EQ(sample.answers[0], (Strings{"X316", "X12", "X683"}));
  EXPECT_NE(sample.questions[0].find("51687"), std::string::npos);
  size_t last = 0;
  for (const char* span : {"VAR X316 = 51687.", "VAR X997 = 50808.", "VAR X12 = X316.",
                           "VAR X360 = X997.", "VAR X683 = X12.", "VAR X681 = X360."}) {
    const size_t at = sample.document.find(span);
    ASSERT_NE(at, std::string::npos) << span;
    EXPECT_GT(at, last) << span;  // chains take turns
    last = at;
  }
}

TEST(SeedTasks, ListsHoldThePublishedWordsAndCounts) {
  const Sample common = third_of_1024("cwe-seed");
  EXPECT_EQ(common.answers[0], (Strings{"canyon", "lichen", "flagon"}));
  EXPECT_EQ(common.pool.size(), 42);
  EXPECT_TRUE(has(common, "\n\nbucket, fountain, sunflower, cello, flagon, lichen, "));
  const Sample frequent = third_of_1024("fwe-seed");
  EXPECT_EQ(frequent.answers[0], (Strings{"plough", "cactus", "dolphin"}));
  EXPECT_EQ(frequent.pool.size(), 20);
  EXPECT_TRUE(has(frequent, "\n\nneedle, cactus, eagle, plough, plough, sandal, "));
  const auto n_listed = [](const Sample& sample) {
    return std::ranges::count(sample.document.substr(sample.document.rfind("\n\n")), ',') + 1;
  };
  EXPECT_EQ(n_listed(common), 108);
  EXPECT_EQ(n_listed(frequent), 88);
}

TEST(SeedTasks, QaAndItsFillerAreThePublishedDraws) {
  const Sample sample = sample_of("qa-seed:length=filler", 2, 1024, 0);
  EXPECT_NE(sample.questions[0].find("Fiona Castellano"), std::string::npos);
  EXPECT_TRUE(has(sample, "Fiona Castellano worked through the summer at Sandervik."));
  EXPECT_TRUE(has(sample, "What was set up at Sandervik is the altimeter."));
  EXPECT_EQ(sample.answers[0], Strings{"altimeter"});
  const Strings& bland = bland_sentences();  // sentences 3, 3, 9
  EXPECT_TRUE(has(sample, "\n\n" + bland[3] + " " + bland[3] + " " + bland[9] + " "));
}

TEST(SeedTasks, NeedlesAreThePublishedCodes) {
  EXPECT_EQ(sample_of("niah-seed", 0, 1024, 0).answers[0], Strings{"1619"});
  EXPECT_EQ(sample_of("niah-seed:variant=multikey", 1, 1024, 0).answers[0], Strings{"6195"});
  EXPECT_EQ(sample_of("niah-seed:variant=multivalue", 2, 1024, 0).answers[0],
            (Strings{"9678", "5139", "8406"}));
  for (int index = 0; index < 3; ++index) {
    const Sample sample = sample_of("niah-seed", index, 3000, 0);
    EXPECT_NEAR(depth_in(sample, sample.answers[0][0]), 0.1 + 0.4 * index, 0.03);
  }
  EXPECT_NE(sample_of("niah-seed", 3, 1024, 0).answers[0], Strings{"1619"});
}

TEST(SeedTasks, FillerAloneHasTheLengthWhereThatIsAskedFor) {
  const SampleRequest request = request_of(0, 1024);
  const Sample sample = parse_task("qa-seed:length=filler").task->make(request);
  EXPECT_GT(prompt_tokens(request, sample), 1024);
  // Of the filler, one sentence less would be too short.
  std::string filler = sample.document.substr(sample.document.find("\n\n") + 2);
  Strings sentences;
  for (const std::string& sentence : split_sentences(filler)) {
    if (std::ranges::find(bland_sentences(), sentence) != bland_sentences().end()) {
      sentences.push_back(sentence);
    }
  }
  EXPECT_GE(count_tokens(joined(sentences, " ")), 1024);
  sentences.pop_back();
  EXPECT_LT(count_tokens(joined(sentences, " ")), 1024);
}

TEST(SeedTasks, ScatterSpansEvenly) {
  const Strings filler = {"a", "b", "c", "d", "e", "f", "g", "h"};
  // int(8 / 3) = 2 of eight, then int(9 * 2 / 3) = 6 of nine.
  EXPECT_EQ(scattered(filler, Strings{"X", "Y"}), "a b X c d e Y f g h");
  EXPECT_EQ(scattered({}, Strings{"X", "Y"}), "Y X");  // as list.insert(0, ...) does
}

TEST(SeedTasks, ScoreIsRecallTimesPrecision) {
  const Sample sample = third_of_1024("vt-seed");
  EXPECT_DOUBLE_EQ(score_of("vt-seed", sample, "X316, X12 and X997"), 2.0 / 3 * 2 / 3);
  EXPECT_DOUBLE_EQ(score_of("vt-seed", sample, joined(sample.pool, " ")), 0.5);
  EXPECT_DOUBLE_EQ(score_of("vt-seed", sample, "X316\n\nX12"), 1.0 / 3);
  EXPECT_EQ(score_of("vt-seed", sample, "X3160"), 0);
  const Sample codes = sample_of("niah-seed:variant=multivalue", 2, 1024, 0);
  EXPECT_EQ(score_of("niah-seed:variant=multivalue", codes, "9678, 5139"), 0);
  EXPECT_EQ(score_of("niah-seed:variant=multivalue", codes, "They are 8406, 9678 and 5139"), 1);
}

}  // namespace
}  // namespace winnow::eval
