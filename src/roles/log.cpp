// log: the time stamp and the level of a line HEADER; names before "=" KEY, the "=" DELIM, what follows VALUE; quoted
// texts, words with digits, addresses and paths VALUE; other words PROSE, with the white space between them; JSON at the
// end of a line as in json. Depth is 0, in JSON the JSON's.
//
// A time stamp is looked for among the first four words of a line and in brackets among the first 64 bytes; a level among
// the eight words at the beginning.

#include <algorithm>
#include <array>
#include <memory>

#include "roles/blocks.h"
#include "roles/detect.h"
#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

constexpr std::array<std::string_view, 17> kLevels{
    "TRACE", "DEBUG", "INFO",  "NOTICE", "WARN", "WARNING", "ERROR",   "SEVERE",   "CRITICAL",
    "FATAL", "ALERT", "EMERG", "ERR",    "CRIT", "PANIC",   "VERBOSE", "EMERGENCY"};
constexpr std::array<std::string_view, 12> kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                   "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};

constexpr bool is_opening(char c) {
  return c == '[' || c == '(' || c == '{' || c == '<';
}

constexpr bool is_closing(char c) {
  return c == ']' || c == ')' || c == '}' || c == '>' || c == ':' || c == ',' || c == ';';
}

// Without brackets and punctuation around it.
std::string_view bare(std::string_view word) {
  while (!word.empty() && is_opening(word.front())) {
    word.remove_prefix(1);
  }
  while (!word.empty() && is_closing(word.back())) {
    word.remove_suffix(1);
  }
  return word;
}

// "local.ERROR" names a level too.
bool is_level(std::string_view word) {
  word = bare(word);
  const size_t dot = word.rfind('.');
  word = word.substr(dot == std::string_view::npos ? 0 : dot + 1);
  return std::ranges::any_of(
             kLevels, [&](std::string_view level) { return equals_in_any_case(word, level); }) &&
         !is_blank(word) && (lower(word.back()) != word.back() || dot == std::string_view::npos);
}

// Digits with the punctuation of dates and times: at least four digits, and ":" or two other separators.
bool is_time(std::string_view word) {
  word = bare(word);
  if (word.empty() || !is_digit(word[0])) {
    return false;
  }
  size_t n_digits = 0;
  size_t n_separators = 0;
  size_t n_commas = 0;
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = word[i];
    if (is_digit(c)) {
      ++n_digits;
    } else if (c == '-' || c == ':' || c == '/') {
      n_separators += c == ':' ? 2 : 1;
    } else if (is_letter(c)) {
      const bool is_month =
          i + 3 <= word.size() && std::ranges::find(kMonths, word.substr(i, 3)) != kMonths.end();
      if (!is_month && c != 'T' && c != 'Z') {
        return false;
      }
      i += is_month ? 2 : 0;
    } else if (c == ',') {
      ++n_commas;
    } else if (c != '.' && c != '+') {
      return false;
    }
  }
  return n_digits >= 4 && n_separators >= 2 && n_commas <= 1;
}

bool is_month_or_day(std::string_view word) {
  word = bare(word);
  constexpr std::array<std::string_view, 7> kDays{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
  return std::ranges::find(kMonths, word) != kMonths.end() ||
         std::ranges::find(kDays, word) != kDays.end();
}

bool is_small_number(std::string_view word) {
  word = bare(word);
  return !word.empty() && word.size() <= 4 && count_while(word, is_digit) == word.size();
}

bool is_zone(std::string_view word) {
  word = bare(word);
  return word == "UTC" || word == "GMT" ||
         (word.size() == 5 && (word[0] == '+' || word[0] == '-') &&
          count_while(word.substr(1), is_digit) == 4);
}

}  // namespace

namespace {

// Whether one of the first n_words words is as asked.
template <typename Predicate>
bool is_among_first(std::string_view line, int n_words, Predicate holds) {
  for (int i = 0; i < n_words; ++i) {
    line.remove_prefix(n_spaces(line));
    const std::string_view word =
        line.substr(0, count_while(line, [](char c) { return !is_space(c); }));
    if (holds(word)) {
      return true;
    }
    line.remove_prefix(word.size());
  }
  return false;
}

}  // namespace

bool begins_with_time(std::string_view line) {
  return is_among_first(line, 4, is_time);
}

bool begins_with_time_and_level(std::string_view line) {
  return begins_with_time(line) && is_among_first(line, 6, is_level);
}

namespace {

class Log final : public LineLabeller {
 protected:
  void label_line(std::string_view line, Spans& spans) override {
    LineLabels labels(line, spans);
    int n_words = 0;
    bool is_in_time = false;  // the last word was part of a time stamp
    bool has_time = false;
    bool has_level = false;
    while (!labels.is_at_end()) {
      const size_t n_space = n_spaces(labels.rest());
      const std::string_view content = labels.rest().substr(n_space);
      const std::string_view word =
          content.substr(0, count_while(content, [](char c) { return !is_space(c); }));
      const bool is_stamp =
          !word.empty() && n_words < 8 &&
          ((!has_time || is_in_time) && n_words < 7 &&
           (is_time(word) || (is_in_time && (is_zone(word) || is_small_number(word))) ||
            (n_words < 4 && is_month_or_day(word))));
      if (is_stamp || (!has_level && n_words < 8 && is_level(word))) {
        labels.add(n_space, is_in_time && is_stamp ? Role::kHeader : Role::kSpace);
        labels.add(word.size(), Role::kHeader);
        has_time |= is_stamp && is_time(word);
        has_level |= !is_stamp;
        last_ = Role::kHeader;
        is_in_time = is_stamp;
        ++n_words;
        continue;
      }
      is_in_time = false;
      if (word.empty() || n_words == 0) {
        labels.add(n_space, Role::kSpace);
      } else {
        labels.add(n_space, last_ == Role::kProse ? Role::kProse : Role::kSpace);
      }
      if (!word.empty()) {
        label_word(labels, word);
      }
      ++n_words;
    }
    last_ = Role::kSpace;
    has_tried_json_ = false;
  }

 private:
  // A word that is no time stamp and no level; quoted texts and JSON are longer than the word.
  void label_word(LineLabels& labels, std::string_view word) {
    const std::string_view rest = labels.rest();
    if (!has_tried_json_ &&
        (word[0] == '{' || (word[0] == '[' && word.size() > 1 && word[1] == '{'))) {
      has_tried_json_ = true;
      if (label_json(labels)) {
        return;
      }
    }
    const size_t equals = word.find('=');
    const bool is_pair = equals != std::string_view::npos && equals > 0 &&
                         count_while(word.substr(0, equals), [](char c) {
                           return is_word_byte(c) || c == '.' || c == '-';
                         }) == equals;
    if (is_pair) {
      labels.add(equals, Role::kKey);
      labels.add(1, Role::kDelim);
      const size_t n = word.size() - equals - 1;
      if (labels.next() == '"') {
        label_quoted(labels);
      } else {
        labels.add(n, Role::kValue);
      }
      last_ = Role::kValue;
      return;
    }
    if (labels.next() == '"') {
      label_quoted(labels);
      last_ = Role::kValue;
      return;
    }
    const std::string_view behind = rest.substr(word.size());
    const bool is_spaced_name =
        n_spaces(behind) > 0 && behind.substr(n_spaces(behind)).starts_with('=') &&
        count_while(word, [](char c) { return is_word_byte(c) || c == '.' || c == '-'; }) ==
            word.size();
    if (is_spaced_name) {  // "name = value"
      labels.add(word.size(), Role::kKey);
      labels.add_space();
      labels.add(1, Role::kDelim);
      last_ = Role::kSpace;
      return;
    }
    const bool is_value = std::ranges::any_of(word, is_digit) ||
                          word.find('/') != std::string_view::npos || last_ == Role::kDelim;
    last_ = is_value ? Role::kValue : Role::kProse;
    labels.add(word.size(), last_);
  }

  static void label_quoted(LineLabels& labels) {
    const std::string_view rest = without_end(labels.rest());
    size_t n = 1;
    while (n < rest.size() && rest[n] != '"') {
      n += rest[n] == '\\' ? 2 : 1;
    }
    labels.add(std::min(n + 1, rest.size()), Role::kValue, 0, /*is_in_string=*/true);
  }

  // Labels the JSON that the line goes on with; false where it is none.
  bool label_json(LineLabels& labels) {
    const std::string_view text = without_end(labels.rest());
    Spans found;
    const std::unique_ptr<Labeller> json = make_json_block();
    json->label(text, /*is_end=*/true, found);
    const bool has_key = std::ranges::any_of(
        found.all(), [](const Span& span) { return span.label.role == Role::kKey; });
    if (!has_key) {
      return false;
    }
    for (const Span& span : found.all()) {
      labels.add(span.end - span.begin, span.label.role, span.label.depth, span.label.is_in_string);
    }
    last_ = Role::kValue;
    return true;
  }

  Role last_ = Role::kSpace;     // of the last word in the line
  bool has_tried_json_ = false;  // in the line: one attempt keeps the work linear
};

}  // namespace

std::unique_ptr<Labeller> make_log() {
  return std::make_unique<Log>();
}

}  // namespace winnow::roles
