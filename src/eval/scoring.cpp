#include "eval/scoring.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"

namespace winnow::eval {
namespace {

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || is_upper(c) || is_digit(c) ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}
char lower(char c) {
  return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_article(std::string_view word) {
  return word == "a" || word == "an" || word == "the";
}

std::vector<std::string> split_at_spaces(std::string_view text) {
  std::vector<std::string> words;
  bool is_inside = false;
  for (const char c : text) {
    if (is_space(c)) {
      is_inside = false;
    } else {
      if (!is_inside) {
        words.emplace_back();
      }
      words.back() += c;
      is_inside = true;
    }
  }
  return words;
}

// " word word ", so that whole words are found by a search for " word ".
std::string spaced(std::string_view text) {
  std::string joined = " ";
  for (const std::string& word : words_of(text)) {
    joined += word + " ";
  }
  return joined;
}

bool contains_spaced(const std::string& text, std::string_view part) {
  const std::string words = spaced(part);
  return words.size() > 1 && text.find(words) != std::string::npos;
}

int count_contained(std::string_view text, std::span<const std::string> parts) {
  const std::string words = spaced(text);
  return static_cast<int>(std::ranges::count_if(
      parts, [&](const std::string& part) { return contains_spaced(words, part); }));
}

// Without "- ", "* ", "3. " or "3) " before it.
std::string_view without_bullet(std::string_view item) {
  item = trim(item);
  size_t n_digits = 0;
  while (n_digits < item.size() && is_digit(item[n_digits])) {
    ++n_digits;
  }
  const bool is_number = n_digits > 0 && n_digits <= 3;
  const size_t mark = is_number ? n_digits : 0;
  if (mark + 1 < item.size() && item[mark + 1] == ' ' &&
      (is_number ? item[mark] == '.' || item[mark] == ')'
                 : item[mark] == '-' || item[mark] == '*')) {
    return trim(item.substr(mark + 1));
  }
  return item;
}

// Whether the comma at `i` groups thousands, as in "12,345".
bool is_grouping_comma(std::string_view text, size_t i) {
  const auto is_digit_at = [&](size_t at) { return at < text.size() && is_digit(text[at]); };
  const bool is_after_digit = i > 0 && is_digit(text[i - 1]);
  const bool is_before_three = is_digit_at(i + 1) && is_digit_at(i + 2) && is_digit_at(i + 3);
  const bool is_after_four =
      i >= 4 && is_digit(text[i - 2]) && is_digit(text[i - 3]) && is_digit(text[i - 4]);
  return is_after_digit && is_before_three && !is_digit_at(i + 4) && !is_after_four;
}

void add_item(std::string_view text, std::vector<std::string>& items) {
  std::string item = normalise(without_bullet(text));
  if (item.starts_with("and ")) {
    item.erase(0, 4);
  }
  if (!item.empty() && std::ranges::find(items, item) == items.end()) {
    items.push_back(std::move(item));
  }
}

double f1_of(const std::vector<std::string>& answer, const std::vector<std::string>& gold) {
  if (answer.empty() || gold.empty()) {
    return answer.empty() && gold.empty() ? 1 : 0;
  }
  std::map<std::string, int> left;
  for (const std::string& word : gold) {
    ++left[word];
  }
  int n_common = 0;
  for (const std::string& word : answer) {
    const auto found = left.find(word);
    if (found != left.end() && found->second > 0) {
      --found->second;
      ++n_common;
    }
  }
  return 2.0 * n_common / static_cast<double>(answer.size() + gold.size());
}

}  // namespace

std::string normalise(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    if (is_word_byte(c)) {
      kept += lower(c);
    } else if (is_space(c)) {
      kept += ' ';
    }
  }
  std::string normal;
  for (const std::string& word : split_at_spaces(kept)) {
    if (!is_article(word)) {
      normal += (normal.empty() ? "" : " ") + word;
    }
  }
  return normal;
}

std::vector<std::string> words_of(std::string_view text) {
  std::string spaced_out;
  for (const char c : text) {
    spaced_out += is_word_byte(c) ? lower(c) : ' ';
  }
  return split_at_spaces(spaced_out);
}

std::string_view first_paragraph(std::string_view answer) {
  answer = trim(answer);
  size_t end = answer.find('\n');
  while (end != std::string_view::npos) {
    size_t next = end + 1;
    while (next < answer.size() && is_space(answer[next]) && answer[next] != '\n') {
      ++next;
    }
    if (next < answer.size() && answer[next] == '\n') {
      return trim(answer.substr(0, end));
    }
    end = answer.find('\n', end + 1);
  }
  return answer;
}

std::vector<std::string> list_items(std::string_view answer) {
  std::vector<std::string> items;
  std::string text(answer);
  for (size_t at = text.find(" and "); at != std::string::npos; at = text.find(" and ", at)) {
    text.replace(at, 5, ", ");
  }
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i == text.size() || text[i] == ';' || text[i] == '\n' ||
        (text[i] == ',' && !is_grouping_comma(text, i))) {
      add_item(std::string_view(text).substr(begin, i - begin), items);
      begin = i + 1;
    }
  }
  return items;
}

bool is_exact(std::string_view answer, std::span<const std::string> gold) {
  const std::string normal = normalise(answer);
  return std::ranges::any_of(gold,
                             [&](const std::string& each) { return normal == normalise(each); });
}

bool is_exact_list(std::string_view answer, std::span<const std::string> gold) {
  const std::vector<std::string> items = list_items(answer);
  std::set<std::string> wanted;
  for (const std::string& each : gold) {
    wanted.insert(normalise(each));
  }
  return std::set<std::string>(items.begin(), items.end()) == wanted;
}

bool contains_words(std::string_view text, std::string_view part) {
  return contains_spaced(spaced(text), part);
}

double contained_share(std::string_view answer, std::span<const std::string> gold) {
  WINNOW_CHECK(!gold.empty());
  return count_contained(answer, gold) / static_cast<double>(gold.size());
}

double contained_any(std::string_view answer, std::span<const std::string> gold) {
  return count_contained(answer, gold) > 0 ? 1 : 0;
}

double word_f1(std::string_view answer, std::span<const std::string> gold) {
  const std::vector<std::string> words = split_at_spaces(normalise(answer));
  double best = 0;
  for (const std::string& each : gold) {
    best = std::max(best, f1_of(words, split_at_spaces(normalise(each))));
  }
  return best;
}

double recall_times_precision(std::string_view answer, std::span<const std::string> gold,
                              std::span<const std::string> pool) {
  const double recall = contained_share(answer, gold);
  const int n_named = count_contained(answer, pool);
  return n_named == 0 ? 0 : recall * recall * static_cast<double>(gold.size()) / n_named;
}

double unseen_word_share(std::string_view answer, std::string_view prompt) {
  const std::vector<std::string> words = words_of(answer);
  if (words.empty()) {
    return 0;
  }
  const std::vector<std::string> prompt_words = words_of(prompt);
  const std::unordered_set<std::string> seen(prompt_words.begin(), prompt_words.end());
  const auto n_unseen =
      std::ranges::count_if(words, [&](const std::string& word) { return !seen.contains(word); });
  return static_cast<double>(n_unseen) / static_cast<double>(words.size());
}

double unseen_share(const Sample& sample, int question, std::string_view answer) {
  return unseen_word_share(
      answer, sample.document + "\n" + sample.questions.at(static_cast<size_t>(question)));
}

Score exact_score(const Sample& sample, int question, std::string_view answer) {
  const std::vector<std::string>& gold = sample.answers.at(static_cast<size_t>(question));
  const std::string_view text = first_paragraph(answer);
  Score score;
  score.secondary["unseen"] = unseen_share(sample, question, text);
  if (sample.rule == AnswerRule::kAll) {
    score.primary = is_exact_list(text, gold) ? 1 : 0;
    score.secondary["contained"] = contained_share(text, gold);
    if (!sample.pool.empty()) {
      score.secondary["recall_precision"] = recall_times_precision(text, gold, sample.pool);
    }
  } else {
    score.primary = is_exact(text, gold) ? 1 : 0;
    score.secondary["contained"] = contained_any(text, gold);
    score.secondary["f1"] = word_f1(text, gold);
  }
  return score;
}

double distinct_n(std::string_view text, int n) {
  WINNOW_CHECK(n > 0);
  const std::vector<std::string> words = words_of(text);
  const auto length = static_cast<size_t>(n);
  if (words.size() < length) {
    return 1;
  }
  std::set<std::vector<std::string>> runs;
  const size_t n_runs = words.size() - length + 1;
  for (size_t i = 0; i < n_runs; ++i) {
    const auto begin = words.begin() + static_cast<std::ptrdiff_t>(i);
    runs.emplace(begin, begin + n);
  }
  return static_cast<double>(runs.size()) / static_cast<double>(n_runs);
}

double looped_share(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  const size_t n = words.size();
  size_t longest = 0;
  for (size_t period = 1; 3 * period <= n; ++period) {
    size_t length = period;
    while (length < n && words[n - 1 - length] == words[n - 1 - length + period]) {
      ++length;
    }
    if (length >= 3 * period) {
      longest = std::max(longest, length);
    }
  }
  return n == 0 ? 0 : static_cast<double>(longest) / static_cast<double>(n);
}

}  // namespace winnow::eval
