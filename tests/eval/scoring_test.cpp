// Scores of right, wrong and partly right answers, by hand.

#include "eval/scoring.h"

#include <gtest/gtest.h>

namespace winnow::eval {
namespace {

using Strings = std::vector<std::string>;

TEST(Normalise, DropsCasePunctuationArticlesAndSpaces) {
  EXPECT_EQ(normalise("  The Quick,\n\tbrown  fox! "), "quick brown fox");
  EXPECT_EQ(normalise("an A the"), "");
  EXPECT_EQ(normalise("12,345.5"), "123455");
  EXPECT_EQ(normalise("theatre another"), "theatre another");
  EXPECT_EQ(normalise("Zürich's"), "zürichs");
}

TEST(WordsOf, SplitsAtWhatIsNeitherLetterNorDigit) {
  EXPECT_EQ(words_of("Blue-Green x_1, (42)"), (Strings{"blue", "green", "x", "1", "42"}));
  EXPECT_TRUE(words_of(" .. ").empty());
}

TEST(FirstParagraph, EndsAtABlankLine) {
  EXPECT_EQ(first_paragraph("\n\n 4213.\n \nQuestion: more"), "4213.");
  EXPECT_EQ(first_paragraph("one\ntwo"), "one\ntwo");
  EXPECT_EQ(first_paragraph(""), "");
}

TEST(ListItems, AreFoundHoweverTheListIsWritten) {
  EXPECT_EQ(list_items("X1, X22 and X3."), (Strings{"x1", "x22", "x3"}));
  EXPECT_EQ(list_items("1. Otter\n2. heron\n- the Willow\n"),
            (Strings{"otter", "heron", "willow"}));
  EXPECT_EQ(list_items("a lamp; lamp,, and Lamp"), (Strings{"lamp"}));
  EXPECT_EQ(list_items("1,234 and 5"), (Strings{"1234", "5"}));
  EXPECT_EQ(list_items("7213, 44"), (Strings{"7213", "44"}));
  EXPECT_EQ(list_items("7213,4410"), (Strings{"7213", "4410"}));
  EXPECT_EQ(list_items("7213,441,"), (Strings{"7213", "441"}));
  EXPECT_TRUE(list_items("").empty());
}

TEST(Exact, TakesAnySpellingAndNothingMore) {
  const Strings gold = {"Oslo", "Oslo, Norway"};
  EXPECT_TRUE(is_exact("oslo.", gold));
  EXPECT_TRUE(is_exact("Oslo Norway", gold));
  EXPECT_FALSE(is_exact("It is Oslo", gold));
  EXPECT_FALSE(is_exact("", gold));
}

TEST(Exact, ListsAreSets) {
  const Strings gold = {"X1", "X22"};
  EXPECT_TRUE(is_exact_list("X22, X1", gold));
  EXPECT_FALSE(is_exact_list("X1", gold));
  EXPECT_FALSE(is_exact_list("X1, X22, X3", gold));
}

TEST(Contained, LooksForWholeWords) {
  EXPECT_TRUE(contains_words("The code is 4213.", "4213"));
  EXPECT_FALSE(contains_words("The code is 42134.", "4213"));
  EXPECT_TRUE(contains_words("at Cape-Lisandro, then", "cape lisandro"));
  EXPECT_FALSE(contains_words("anything", " . "));
  EXPECT_DOUBLE_EQ(contained_share("X1 and X3", Strings{"X1", "X2", "X3"}), 2.0 / 3);
  EXPECT_EQ(contained_any("X9", Strings{"X1", "X2"}), 0);
  EXPECT_EQ(contained_any("X2", Strings{"X1", "X2"}), 1);
}

TEST(WordF1, CountsCommonWords) {
  // "a cat sat" has 2 words beside the article, "cat sat down there" 4, of which 2 are common: 2 * 2 / 6.
  EXPECT_DOUBLE_EQ(word_f1("a cat sat", Strings{"cat sat down there"}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(word_f1("go go go", Strings{"go"}), 0.5);  // each word of the gold counts once
  EXPECT_EQ(word_f1("", Strings{"x"}), 0);
  EXPECT_EQ(word_f1("y x", Strings{"z", "x y"}), 1);
}

TEST(RecallTimesPrecision, PunishesNamingEverything) {
  const Strings gold = {"otter", "heron", "flint"};
  const Strings pool = {"otter", "heron", "flint", "slate", "hazel", "opal"};
  EXPECT_EQ(recall_times_precision("otter, heron, flint", gold, pool), 1);
  EXPECT_DOUBLE_EQ(recall_times_precision("otter heron flint slate hazel opal", gold, pool), 0.5);
  EXPECT_DOUBLE_EQ(recall_times_precision("otter and slate", gold, pool), 1.0 / 3 * 0.5);
  EXPECT_EQ(recall_times_precision("slate", gold, pool), 0);
  EXPECT_EQ(recall_times_precision("opportunity", gold, pool), 0);
}

TEST(UnseenWordShare, CountsWhatThePromptDoesNotContain) {
  EXPECT_DOUBLE_EQ(unseen_word_share("the words: opportunity, innovation", "The WORDS are"), 0.5);
  EXPECT_EQ(unseen_word_share("", "prompt"), 0);
  EXPECT_EQ(unseen_word_share("new", ""), 1);
}

TEST(Repetition, IsSeenInDistinctRunsAndInLoops) {
  EXPECT_DOUBLE_EQ(distinct_n("the the the the", 1), 0.25);
  EXPECT_DOUBLE_EQ(distinct_n("a b a b a", 2), 0.5);  // ab ba ab ba
  EXPECT_EQ(distinct_n("one", 2), 1);
  EXPECT_DOUBLE_EQ(looped_share("he said the the the"), 0.6);
  EXPECT_DOUBLE_EQ(looped_share("x a b a b a b"), 6.0 / 7);
  EXPECT_EQ(looped_share("a b a b"), 0);
  EXPECT_EQ(looped_share("all of these words differ"), 0);
  EXPECT_EQ(looped_share(""), 0);
}

}  // namespace
}  // namespace winnow::eval
