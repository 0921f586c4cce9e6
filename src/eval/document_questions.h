// Questions about any text that has its answers in it: made from the text alone, so that a user's own file can be
// evaluated on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

struct DocumentQuestion {
  std::string question;
  std::string answer;
  size_t place = 0;  // of the answer in the text, in bytes
};

// A word that stands in the text once is missing from its sentence.
std::vector<DocumentQuestion> cloze_questions(std::string_view text);

// A key that stands in the text once has a value: of JSON ("key": value), YAML, INI, TOML or headers (key: value,
// key = value).
std::vector<DocumentQuestion> lookup_questions(std::string_view text);

// A sentence goes on after words that begin no other.
std::vector<DocumentQuestion> quote_questions(std::string_view text);

}  // namespace winnow::eval
