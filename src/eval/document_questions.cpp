#include "eval/document_questions.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/text.h"
#include "eval/haystack.h"
#include "eval/prompt_length.h"
#include "eval/scoring.h"

namespace winnow::eval {
namespace {

constexpr size_t kFewestLetters = 5;     // of a word that is left out
constexpr size_t kFewestWords = 6;       // of a sentence that a word is missing from
constexpr size_t kMostWordsAround = 12;  // of it, on each side
constexpr size_t kLongestPassage = 240;  // bytes, of what a question quotes
constexpr size_t kGivenWords = 8;        // of a quote
constexpr size_t kAskedWords = 6;
constexpr size_t kLongestKey = 60;  // bytes
constexpr size_t kLongestValue = 80;

bool is_letter_or_digit(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct Pair {
  std::string key;
  std::string value;
  size_t place;
};

bool is_key_character(char c) {
  return is_letter_or_digit(c) || c == '_' || c == '-' || c == '.';
}

std::string_view without_quotes(std::string_view text) {
  text = trim(text);
  while (!text.empty() && (text.back() == ',' || text.back() == ';')) {
    text = trim(text.substr(0, text.size() - 1));
  }
  const bool is_quoted = text.size() >= 2 && (text.front() == '"' || text.front() == '\'') &&
                         text.back() == text.front();
  return is_quoted ? text.substr(1, text.size() - 2) : text;
}

// The place of ':' or '=' behind an unquoted key that starts the line; npos where the line has no such form.
size_t separator_of(std::string_view line) {
  size_t i = 0;
  while (i < line.size() && is_key_character(line[i])) {
    ++i;
  }
  const bool has_key = i > 0 && i <= kLongestKey;
  while (i < line.size() && line[i] == ' ') {
    ++i;
  }
  const bool is_separated =
      i < line.size() &&
      (line[i] == '=' || (line[i] == ':' && i + 1 < line.size() && line[i + 1] == ' '));
  return has_key && is_separated ? i : std::string_view::npos;
}

void add_pair(std::string_view text, std::string_view key, std::string_view value,
              std::vector<Pair>& pairs) {
  key = trim(key);
  value = without_quotes(value);
  const bool is_plain = !value.empty() && value.size() <= kLongestValue &&
                        value.find_first_of("{}[]<>\"\\\n") == std::string_view::npos;
  if (!key.empty() && key.size() <= kLongestKey && is_plain && !normalise(value).empty()) {
    pairs.push_back(
        {std::string(key), std::string(value), static_cast<size_t>(value.data() - text.data())});
  }
}

// "key": value, anywhere in the text.
void add_json_pairs(std::string_view text, std::vector<Pair>& pairs) {
  for (size_t colon = text.find("\":"); colon != std::string_view::npos;
       colon = text.find("\":", colon + 1)) {
    const size_t begin = colon == 0 ? std::string_view::npos : text.rfind('"', colon - 1);
    if (begin == std::string_view::npos) {
      continue;
    }
    std::string_view rest = text.substr(colon + 2);
    const size_t n_spaces = std::min(rest.find_first_not_of(" \t"), rest.size());
    rest.remove_prefix(n_spaces);
    const bool is_string = rest.starts_with('"');
    const size_t end = is_string ? rest.find('"', 1) : rest.find_first_of(",}\n");
    add_pair(text, text.substr(begin + 1, colon - begin - 1),
             rest.substr(0, end == std::string_view::npos ? end : end + (is_string ? 1 : 0)),
             pairs);
  }
}

void add_line_pairs(std::string_view text, std::vector<Pair>& pairs) {
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = trim(text.substr(begin, end - begin));
    if (line.starts_with("- ")) {
      line = trim(line.substr(2));
    }
    const size_t separator = separator_of(line);
    if (separator != std::string_view::npos) {
      add_pair(text, line.substr(0, separator), line.substr(separator + 1), pairs);
    }
    begin = end + 1;
  }
}

// The sentence's words as they stand in it.
std::vector<std::string> spaced_words(const std::string& sentence) {
  std::vector<std::string> words(1);
  for (const char c : sentence) {
    if (c == ' ') {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

std::string_view without_punctuation(std::string_view word) {
  while (!word.empty() && !is_letter_or_digit(word.back())) {
    word.remove_suffix(1);
  }
  while (!word.empty() && !is_letter_or_digit(word.front())) {
    word.remove_prefix(1);
  }
  return word;
}

bool is_plain_word(std::string_view word) {
  return word.size() >= kFewestLetters && std::ranges::all_of(word, is_letter_or_digit);
}

}  // namespace

std::vector<DocumentQuestion> cloze_questions(std::string_view text) {
  std::map<std::string, int> counts;
  for (std::string& word : words_of(text)) {
    ++counts[std::move(word)];
  }
  std::vector<DocumentQuestion> questions;
  for (const std::string& sentence : split_sentences(text)) {
    const std::vector<std::string> words = spaced_words(sentence);
    if (words.size() < kFewestWords) {
      continue;
    }
    for (size_t i = 1; i < words.size(); ++i) {  // a first word's capital would tell
      const std::string_view missing = without_punctuation(words[i]);
      if (!is_plain_word(missing) || counts[words_of(missing).front()] != 1) {
        continue;
      }
      const size_t begin = i > kMostWordsAround ? i - kMostWordsAround : 0;
      const size_t end = std::min(words.size(), i + kMostWordsAround + 1);
      std::vector<std::string> gapped(words.begin() + static_cast<std::ptrdiff_t>(begin),
                                      words.begin() + static_cast<std::ptrdiff_t>(end));
      std::string& gap = gapped[i - begin];
      gap.replace(gap.find(missing), missing.size(), "____");
      const std::string passage = joined(gapped, " ");
      if (passage.size() > kLongestPassage) {
        continue;
      }
      questions.push_back({"One word is missing from this passage of the document: \"" + passage +
                               "\" What is the word? Answer with the word alone.",
                           std::string(missing), text.find(missing)});
    }
  }
  return questions;
}

std::vector<DocumentQuestion> lookup_questions(std::string_view text) {
  std::vector<Pair> pairs;
  add_json_pairs(text, pairs);
  add_line_pairs(text, pairs);
  std::map<std::string, int> counts;
  for (const Pair& pair : pairs) {
    ++counts[pair.key];
  }
  std::vector<DocumentQuestion> questions;
  for (const Pair& pair : pairs) {
    if (counts.at(pair.key) == 1) {
      questions.push_back({"What is the value of \"" + pair.key +
                               "\" in the document? Answer with the value alone.",
                           pair.value, pair.place});
    }
  }
  return questions;
}

std::vector<DocumentQuestion> quote_questions(std::string_view text) {
  const std::vector<std::string> sentences = split_sentences(text);
  const auto beginning = [](const std::vector<std::string>& words) {
    return joined(std::span(words).first(kGivenWords), " ");
  };
  std::map<std::string, int> counts;
  for (const std::string& sentence : sentences) {
    const std::vector<std::string> words = spaced_words(sentence);
    if (words.size() >= kGivenWords) {
      ++counts[beginning(words)];
    }
  }
  std::vector<DocumentQuestion> questions;
  size_t place = 0;
  for (const std::string& sentence : sentences) {
    const std::vector<std::string> words = spaced_words(sentence);
    // The sentence's line breaks are gone, so its first word tells where it stands.
    place = std::min(text.find(words.front(), place), text.size());
    if (words.size() < kGivenWords + kAskedWords || counts.at(beginning(words)) != 1 ||
        beginning(words).size() > kLongestPassage) {
      continue;
    }
    questions.push_back({"A sentence of the document begins: \"" + beginning(words) +
                             "\" What are its next " + std::to_string(kAskedWords) +
                             " words? Answer with these words alone.",
                         joined(std::span(words).subspan(kGivenWords, kAskedWords), " "), place});
  }
  return questions;
}

}  // namespace winnow::eval
