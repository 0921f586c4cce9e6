// How answers are compared with gold answers and prompts, as numbers from 0 to 1.
//
// `normalise` is what SQuAD's evaluation does (Rajpurkar et al., arXiv 1606.05250): lower case, no punctuation, no
// articles, single spaces. It deletes punctuation, so "12,345" is "12345" and a UUID stays one word. `words_of` splits
// at everything that is neither letter nor digit, so "a-b" is two words. Both leave bytes beyond ASCII as letters.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "eval/task.h"

namespace winnow::eval {

std::string normalise(std::string_view text);
std::vector<std::string> words_of(std::string_view text);  // lower case

// What a model wrote in answer to the question, without what it went on to write: up to the first blank line that
// something stands before, trimmed.
std::string_view first_paragraph(std::string_view answer);

// The entries of a list as models write them, normalised, without empty and repeated ones: separated by commas,
// semicolons, line ends or "and", with or without bullets and numbers before them.
std::vector<std::string> list_items(std::string_view answer);

// Whether the answer is one of the gold answers after normalisation.
bool is_exact(std::string_view answer, std::span<const std::string> gold);
// Whether the answer's list_items() are the gold answers, in any order.
bool is_exact_list(std::string_view answer, std::span<const std::string> gold);

// Whether the words of `part` stand in the text one after another; false for a part without words.
bool contains_words(std::string_view text, std::string_view part);
// Share of the gold answers whose words stand in the answer. This is RULER's score of several needles.
double contained_share(std::string_view answer, std::span<const std::string> gold);
// 1 if any gold answer's words stand in the answer, else 0.
double contained_any(std::string_view answer, std::span<const std::string> gold);

// Harmonic mean of the precision and recall of normalised words, with their counts: SQuAD's F1. The best of the gold
// answers.
double word_f1(std::string_view answer, std::span<const std::string> gold);

// Recall of the gold answers, times the precision among what is named of the pool they were drawn from: naming
// everything is worth gold.size() / pool.size(). The gold answers are part of the pool.
double recall_times_precision(std::string_view answer, std::span<const std::string> gold,
                              std::span<const std::string> pool);

// Share of the answer's words that the prompt does not contain: what was made up. 0 for an empty answer.
double unseen_word_share(std::string_view answer, std::string_view prompt);

// The same of a question's whole prompt.
double unseen_share(const Sample& sample, int question, std::string_view answer);

// Scores of an answer's first paragraph. Primary: it is the gold list (kAll) or a gold answer (kAny). Secondary:
// "contained", "unseen", and "recall_precision" where the sample has a pool, "f1" where it asks for one answer.
Score exact_score(const Sample& sample, int question, std::string_view answer);

// Different runs of n words over all of them (Li et al., arXiv 1510.03055); 1 for texts of fewer words. Low in loops.
double distinct_n(std::string_view text, int n);

// Share of the text's words that lie in its end's loop: the longest end that repeats a run of words at least three
// times over. 0 where the end does not loop.
double looped_share(std::string_view text);

}  // namespace winnow::eval
