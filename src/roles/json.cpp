// json, jsonl: brackets, colons and commas DELIM; strings in the place of a key KEY, others VALUE, both with their quotes;
// numbers and literals VALUE; comments and what is none of this PROSE. Depth counts the brackets around a byte, its own
// included.
//
// JSON5's liberties are taken: single quotes, bare keys, comments, more numbers; so are Python's literals. A string ends
// at the end of its line, so that a lost quote costs a line. In an object what stands before a colon is a key, and what
// follows a value is a key again, comma or not; brackets that do not match close whatever is open.

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "roles/blocks.h"
#include "roles/bytes.h"
#include "roles/formats.h"

namespace winnow::roles {
namespace {

constexpr size_t kLongestWord = 512;      // bare words are judged in pieces of so many bytes
constexpr size_t kLongestOutside = 4096;  // a string outside all brackets that may be a key
constexpr size_t kLongestGap = 256;       // of white space between the values of a block
constexpr std::array<std::string_view, 14> kLiterals{
    "true", "false", "null", "True",     "False",     "None",      "NaN",
    "nan",  "inf",   "-inf", "Infinity", "-Infinity", "+Infinity", "undefined"};

constexpr bool is_delimiter(char c) {
  return c == '{' || c == '}' || c == '[' || c == ']' || c == ':' || c == ',';
}

constexpr bool is_bare(char c) {
  return !is_delimiter(c) && !is_space(c) && c != '"' && c != '\'' && c != '/';
}

bool is_number(std::string_view word) {
  if (word.starts_with('-') || word.starts_with('+')) {
    word.remove_prefix(1);
  }
  if (word.empty() || (!is_digit(word[0]) && word[0] != '.')) {
    return false;
  }
  for (size_t i = 0; i < word.size(); ++i) {
    const char c = lower(word[i]);
    const bool is_sign = (c == '+' || c == '-') && i > 0 && lower(word[i - 1]) == 'e';
    if (!is_digit(c) && !(c >= 'a' && c <= 'f') && c != 'x' && c != '.' && c != '_' && !is_sign) {
      return false;
    }
  }
  return true;
}

bool is_name(std::string_view word) {
  return is_letter(word[0]) || word[0] == '_' || word[0] == '$' ||
         static_cast<unsigned char>(word[0]) >= 0x80;
}

enum class Kind { kText, kLines, kBlock };

class Json final : public Labeller {
 public:
  explicit Json(Kind kind) : kind_(kind) {}

  void label(std::string_view text, bool is_end, Spans& spans) override {
    for (size_t n = 1; n > 0 && !text.empty() && !is_done_;) {
      n = label_next(text, is_end, spans);
      text.remove_prefix(n);
    }
  }

  bool is_done() const override { return is_done_; }

 private:
  enum class State { kBetween, kString, kLineComment, kBlockComment, kBehindRoot };

  // Labels what `text` begins with; returns its length, or 0 where more text is needed.
  size_t label_next(std::string_view text, bool is_end, Spans& spans);
  size_t label_string(std::string_view text, bool is_end, Spans& spans);
  size_t label_comment(std::string_view text, bool is_end, Spans& spans);
  size_t label_word(std::string_view text, bool is_end, Spans& spans);
  size_t label_behind_root(std::string_view text, bool is_end, Spans& spans);
  size_t label_junk(size_t n_bytes, Spans& spans);
  size_t open_string(std::string_view text, bool is_end, Spans& spans);
  void label_delimiter(char c, Spans& spans);
  void end_value();

  int depth() const { return static_cast<int>(is_object_.size()); }
  bool is_key_next() const { return !is_object_.empty() && is_object_.back() && !is_behind_colon_; }

  Kind kind_;
  State state_ = State::kBetween;
  std::vector<bool> is_object_;   // of the open brackets
  bool is_behind_colon_ = false;  // in an object: the value of a key is next
  char quote_ = '"';              // in a string
  Role string_role_ = Role::kValue;
  char root_ = '\0';  // the last bracket outside all others
  bool is_done_ = false;
};

size_t Json::label_next(std::string_view text, bool is_end, Spans& spans) {
  if (state_ == State::kString) {
    return label_string(text, is_end, spans);
  }
  if (state_ == State::kBehindRoot) {
    return label_behind_root(text, is_end, spans);
  }
  if (state_ != State::kBetween) {
    return label_comment(text, is_end, spans);
  }
  const char c = text[0];
  if (is_space(c)) {
    size_t n = n_spaces(text);
    if (kind_ == Kind::kLines) {  // the next line is a document of its own
      const size_t end = text.substr(0, n).find('\n');
      if (end != std::string_view::npos) {
        spans.add(end + 1, Role::kSpace, depth());
        is_object_.clear();
        is_behind_colon_ = false;
        return end + 1;
      }
    }
    spans.add(n, Role::kSpace, depth());
    return n;
  }
  if (is_delimiter(c)) {
    label_delimiter(c, spans);
    return 1;
  }
  if (c == '"' || c == '\'') {
    return open_string(text, is_end, spans);
  }
  if (c == '/') {
    if (text.size() < 2 && !is_end) {
      return 0;
    }
    const char second = text.size() < 2 ? '\0' : text[1];
    if ((second != '/' && second != '*') || kind_ == Kind::kBlock) {
      return label_junk(1, spans);
    }
    state_ = second == '/' ? State::kLineComment : State::kBlockComment;
    spans.add(2, Role::kProse, depth());
    return 2;
  }
  return label_word(text, is_end, spans);
}

void Json::label_delimiter(char c, Spans& spans) {
  if (c == '{' || c == '[') {
    if (is_object_.empty()) {
      root_ = c;
    }
    is_object_.push_back(c == '{');
    is_behind_colon_ = false;
    spans.add(1, Role::kDelim, depth());
    return;
  }
  spans.add(1, Role::kDelim, depth());
  if (c == '}' || c == ']') {
    if (!is_object_.empty()) {
      is_object_.pop_back();
    }
    end_value();
  } else {
    is_behind_colon_ = c == ':';
  }
}

void Json::end_value() {
  is_behind_colon_ = false;
  if (kind_ == Kind::kBlock && is_object_.empty()) {
    state_ = State::kBehindRoot;
  }
}

// A block goes on where the next line begins as it did.
size_t Json::label_behind_root(std::string_view text, bool is_end, Spans& spans) {
  const std::string_view searched = text.substr(0, kLongestGap);
  const size_t n = n_spaces(searched);
  if (n == text.size() && !is_end) {
    return 0;
  }
  if (n == searched.size() || text[n] != root_ ||
      searched.substr(0, n).find('\n') == std::string_view::npos) {
    is_done_ = true;
    return 0;
  }
  spans.add(n, Role::kSpace);
  state_ = State::kBetween;
  return n;
}

// Outside all brackets only the colon behind a string tells that it is a key.
size_t Json::open_string(std::string_view text, bool is_end, Spans& spans) {
  string_role_ = is_key_next() ? Role::kKey : Role::kValue;
  if (is_object_.empty()) {
    const std::string_view searched = text.substr(0, kLongestOutside);
    size_t at = 1;
    while (at < searched.size() && searched[at] != text[0] && searched[at] != '\n') {
      at += searched[at] == '\\' ? 2 : 1;
    }
    ++at;
    while (at < searched.size() && is_space(searched[at])) {
      ++at;
    }
    if (at >= searched.size() && searched.size() < kLongestOutside && !is_end) {
      return 0;
    }
    if (at < searched.size() && searched[at] == ':') {
      string_role_ = Role::kKey;
    }
  }
  quote_ = text[0];
  state_ = State::kString;
  spans.add(1, string_role_, depth(), /*is_in_string=*/true);
  return 1;
}

size_t Json::label_string(std::string_view text, bool is_end, Spans& spans) {
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == quote_) {
      spans.add(at + 1, string_role_, depth(), true);
      state_ = State::kBetween;
      end_value();
      return at + 1;
    }
    if (c == '\n') {
      break;
    }
    if (c == '\\') {
      // JSON5: a line may end in the string. "\r\n" is one end.
      const size_t n = text.substr(at + 1).starts_with("\r\n") ? 3 : 2;
      const bool may_be_longer =
          text.size() - at < n || (text.size() - at == 2 && text[at + 1] == '\r');
      if (may_be_longer && !is_end) {
        spans.add(at, string_role_, depth(), true);
        return at;
      }
      at = std::min(at + n, text.size());
    } else {
      ++at;
    }
  }
  spans.add(at, string_role_, depth(), true);
  if (at < text.size()) {
    state_ = State::kBetween;
    end_value();
    if (at == 0) {
      return label_next(text, is_end, spans);
    }
  }
  return at;
}

size_t Json::label_comment(std::string_view text, bool is_end, Spans& spans) {
  const bool is_line = state_ == State::kLineComment;
  const size_t end = text.find(is_line ? "\n" : "*/");
  if (end != std::string_view::npos) {
    const size_t n = is_line ? end : end + 2;
    spans.add(n, Role::kProse, depth());
    state_ = State::kBetween;
    return n > 0 ? n : label_next(text, is_end, spans);
  }
  const size_t n = text.size() - (!is_line && !is_end && text.ends_with('*') ? 1 : 0);
  spans.add(n, Role::kProse, depth());
  return n;
}

size_t Json::label_word(std::string_view text, bool is_end, Spans& spans) {
  if (text.starts_with(kByteOrderMark)) {
    spans.add(kByteOrderMark.size(), Role::kSpace, depth());
    return kByteOrderMark.size();
  }
  const std::string_view searched = text.substr(0, kLongestWord);
  const std::string_view word = searched.substr(0, count_while(searched, is_bare));
  if (word.size() == text.size() && !is_end) {
    return 0;
  }
  if (is_key_next()) {
    if (!is_name(word)) {
      return label_junk(word.size(), spans);
    }
    spans.add(word.size(), Role::kKey, depth());
  } else if (is_number(word) || std::ranges::find(kLiterals, word) != kLiterals.end()) {
    spans.add(word.size(), Role::kValue, depth());
    end_value();
  } else {
    return label_junk(word.size(), spans);
  }
  return word.size();
}

size_t Json::label_junk(size_t n_bytes, Spans& spans) {
  if (kind_ == Kind::kBlock) {
    is_done_ = true;
    return 0;
  }
  spans.add(n_bytes, Role::kProse, depth());
  return n_bytes;
}

}  // namespace

std::unique_ptr<Labeller> make_json() {
  return std::make_unique<Json>(Kind::kText);
}

std::unique_ptr<Labeller> make_json_lines() {
  return std::make_unique<Json>(Kind::kLines);
}

std::unique_ptr<Labeller> make_json_block() {
  return std::make_unique<Json>(Kind::kBlock);
}

}  // namespace winnow::roles
