// xml, html: "<", "</", "/>", ">", "=" and quotes DELIM; names of elements and attributes KEY; values of attributes, text
// and CDATA VALUE; all white space in them WS; comments, declarations and instructions DELIM. What stands outside all
// elements is PROSE. Depth counts the elements around a byte, its own tag included.
//
// A "<" that begins no tag is text. HTML's elements without end tags are known, and an end tag closes all up to the one
// that it names, if that is among the innermost; one that names none is passed over.

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "roles/blocks.h"
#include "roles/bytes.h"
#include "roles/formats.h"

namespace winnow::roles {
namespace {

constexpr size_t kLongestName = 256;          // longer ones are cut
constexpr size_t kInnermost = 64;             // open elements among which an end tag finds its own
constexpr size_t kDeepest = size_t{1} << 20;  // deeper elements are counted, without their names

constexpr std::array<std::string_view, 14> kVoid{"area",  "base",   "br",    "col",  "embed",
                                                 "hr",    "img",    "input", "link", "meta",
                                                 "param", "source", "track", "wbr"};
// Elements that the next of their name ends.
constexpr std::array<std::string_view, 8> kEndedByNext{"p",  "li", "td", "th",
                                                       "tr", "dt", "dd", "option"};
// Elements whose text holds no tags.
constexpr std::array<std::string_view, 4> kRawText{"script", "style", "textarea", "title"};

template <size_t N>
bool is_one_of(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

constexpr bool begins_name(char c) {
  return is_letter(c) || c == '_' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

constexpr bool is_in_name(char c) {
  return !is_space(c) && c != '>' && c != '/' && c != '=' && c != '"' && c != '\'' && c != '<';
}

class Xml final : public Labeller {
 public:
  Xml(std::string_view format, bool is_block) : is_html_(format == "html"), is_block_(is_block) {}

  void label(std::string_view text, bool is_end, Spans& spans) override {
    for (size_t n = 1; n > 0 && !text.empty() && !is_done_;) {
      n = label_next(text, is_end, spans);
      text.remove_prefix(n);
    }
  }

  bool is_done() const override { return is_done_; }

 private:
  enum class State { kText, kProse, kTag, kQuoted, kUnquoted, kUntil, kDoctype, kCdata, kRaw };

  // Labels what `text` begins with; returns its length, or 0 where more text is needed.
  size_t label_next(std::string_view text, bool is_end, Spans& spans);
  size_t label_text(std::string_view text, bool is_end, Spans& spans);
  size_t label_markup(std::string_view text, bool is_end, Spans& spans);
  void begin_tag(std::string_view name, bool is_end_tag);
  size_t label_in_tag(std::string_view text, bool is_end, Spans& spans);
  size_t label_quoted(std::string_view text, Spans& spans);
  size_t label_doctype(std::string_view text, Spans& spans);
  size_t label_until(std::string_view text, bool is_end, Spans& spans);
  size_t label_cdata(std::string_view text, bool is_end, Spans& spans);
  size_t label_raw(std::string_view text, bool is_end, Spans& spans);
  size_t delim(size_t n_bytes, State next, Spans& spans);
  void add_words(std::string_view text, Spans& spans);
  void open_element();
  void close_element();
  void end_tag(bool is_empty);

  int depth() const {
    return static_cast<int>(open_.size() + n_deeper_) + (is_in_end_tag_ ? 1 : 0);
  }
  bool is_outside() const { return open_.empty() && n_deeper_ == 0; }

  bool is_html_;
  bool is_block_;
  State state_ = State::kText;
  std::vector<uint32_t> open_;  // hashes of the names of open elements
  size_t n_deeper_ = 0;         // further ones
  std::string name_;            // of the tag
  bool is_end_tag_ = false;
  bool is_in_end_tag_ = false;  // its element is closed already
  bool is_behind_equals_ = false;
  char quote_ = '"';
  std::string_view until_;
  bool is_in_subset_ = false;  // of a DOCTYPE
  bool is_done_ = false;
};

uint32_t hash_of(std::string_view name) {
  uint32_t hash = 2166136261U;  // FNV-1a
  for (const char c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  }
  return hash;
}

size_t Xml::label_next(std::string_view text, bool is_end, Spans& spans) {
  switch (state_) {
    case State::kText:
    case State::kProse:
      return text[0] == '<' ? label_markup(text, is_end, spans) : label_text(text, is_end, spans);
    case State::kTag:
      return label_in_tag(text, is_end, spans);
    case State::kQuoted:
      return label_quoted(text, spans);
    case State::kUnquoted: {
      const size_t n = count_while(text, [](char c) { return !is_space(c) && c != '>'; });
      spans.add(n, Role::kValue, depth());
      if (n < text.size()) {
        state_ = State::kTag;
      }
      return n > 0 ? n : label_in_tag(text, is_end, spans);
    }
    case State::kUntil:
      return label_until(text, is_end, spans);
    case State::kDoctype:
      return label_doctype(text, spans);
    case State::kCdata:
      return label_cdata(text, is_end, spans);
    case State::kRaw:
      return label_raw(text, is_end, spans);
  }
  return 0;
}

// Words VALUE, what separates them WS.
void Xml::add_words(std::string_view text, Spans& spans) {
  const int d = depth();
  while (!text.empty()) {
    const size_t n_space = n_spaces(text);
    spans.add(n_space, Role::kSpace, d);
    text.remove_prefix(n_space);
    const size_t n_word = count_while(text, [](char c) { return !is_space(c); });
    spans.add(n_word, Role::kValue, d);
    text.remove_prefix(n_word);
  }
}

size_t Xml::label_text(std::string_view text, bool is_end, Spans& spans) {
  const size_t n = std::min(text.find('<'), text.size());
  if (!is_outside()) {
    add_words(text.substr(0, n), spans);
    return n;
  }
  if (state_ == State::kText) {  // nothing but white space so far
    const size_t n_space = n_spaces(text.substr(0, n));
    if (n_space > 0) {
      spans.add(n_space, Role::kSpace);
      return n_space;
    }
    if (text.size() < kByteOrderMark.size() && kByteOrderMark.starts_with(text) && !is_end) {
      return 0;
    }
    if (text.starts_with(kByteOrderMark)) {
      spans.add(kByteOrderMark.size(), Role::kSpace);
      return kByteOrderMark.size();
    }
    state_ = State::kProse;
  }
  spans.add(n, Role::kProse);
  return n;
}

size_t Xml::delim(size_t n_bytes, State next, Spans& spans) {
  spans.add(n_bytes, Role::kDelim, depth());
  state_ = next;
  return n_bytes;
}

// `text` begins with "<".
size_t Xml::label_markup(std::string_view text, bool is_end, Spans& spans) {
  constexpr std::string_view kCdataBegin = "<![CDATA[";
  if (text.size() < kCdataBegin.size() && !is_end) {
    return 0;
  }
  const char next = text.size() > 1 ? text[1] : '\0';
  if (is_block_ && next == '|') {  // a mark of a chat template: the element was not finished
    is_done_ = true;
    return 0;
  }
  if (text.starts_with("<!--")) {
    until_ = "-->";
    return delim(4, State::kUntil, spans);
  }
  if (text.starts_with(kCdataBegin)) {
    return delim(kCdataBegin.size(), State::kCdata, spans);
  }
  if (next == '?') {
    until_ = "?>";
    return delim(2, State::kUntil, spans);
  }
  if (next == '!' && text.size() > 2 && is_letter(text[2])) {
    is_in_subset_ = false;
    return delim(2, State::kDoctype, spans);
  }
  const bool is_end_tag = next == '/' && text.size() > 2 && begins_name(text[2]);
  if (!is_end_tag && !begins_name(next)) {
    spans.add(1, is_outside() ? Role::kProse : Role::kValue, depth());
    return 1;
  }
  const size_t n_mark = is_end_tag ? 2 : 1;
  const std::string_view behind = text.substr(n_mark);
  const size_t n_name = count_while(behind.substr(0, kLongestName), is_in_name);
  if (n_name == behind.size() && !is_end) {
    return 0;
  }
  begin_tag(behind.substr(0, n_name), is_end_tag);
  spans.add(n_mark, Role::kDelim, depth());
  spans.add(n_name, Role::kKey, depth());
  return n_mark + n_name;
}

void Xml::begin_tag(std::string_view name, bool is_end_tag) {
  name_ = name;
  if (is_html_) {
    std::ranges::transform(name_, name_.begin(), lower);
  }
  is_end_tag_ = is_end_tag;
  if (is_end_tag) {
    close_element();
  } else {
    open_element();
  }
  is_behind_equals_ = false;
  state_ = State::kTag;
}

void Xml::open_element() {
  const uint32_t hash = hash_of(name_);
  if (is_html_ && is_one_of(kEndedByNext, name_) && !open_.empty() && open_.back() == hash) {
    open_.pop_back();
  }
  if (open_.size() < kDeepest && n_deeper_ == 0) {
    open_.push_back(hash);
  } else {
    ++n_deeper_;
  }
}

void Xml::close_element() {
  const size_t before = open_.size() + n_deeper_;
  if (n_deeper_ > 0) {
    --n_deeper_;
  } else {
    const size_t n = std::min(open_.size(), kInnermost);
    const auto last =
        std::find(open_.rbegin(), open_.rbegin() + static_cast<ptrdiff_t>(n), hash_of(name_));
    if (last != open_.rbegin() + static_cast<ptrdiff_t>(n)) {
      open_.erase(last.base() - 1, open_.end());
    }
  }
  is_in_end_tag_ = open_.size() + n_deeper_ < before;
}

size_t Xml::label_in_tag(std::string_view text, bool is_end, Spans& spans) {
  const char c = text[0];
  if (is_space(c)) {
    const size_t n = n_spaces(text);
    spans.add(n, Role::kSpace, depth());
    return n;
  }
  if (c == '>') {
    spans.add(1, Role::kDelim, depth());
    end_tag(/*is_empty=*/false);
    return 1;
  }
  if (c == '<') {  // the tag was not finished
    is_in_end_tag_ = false;
    return label_markup(text, is_end, spans);
  }
  if (c == '/' && !is_behind_equals_) {
    if (text.size() < 2 && !is_end) {
      return 0;
    }
    const bool is_empty = text.size() > 1 && text[1] == '>';
    spans.add(is_empty ? 2 : 1, Role::kDelim, depth());
    if (is_empty) {
      end_tag(is_empty);
    }
    return is_empty ? 2 : 1;
  }
  if (c == '=') {
    is_behind_equals_ = true;
    return delim(1, State::kTag, spans);
  }
  if (c == '"' || c == '\'') {
    quote_ = c;
    spans.add(1, Role::kDelim, depth(), /*is_in_string=*/true);
    state_ = State::kQuoted;
    return 1;
  }
  if (is_behind_equals_) {
    is_behind_equals_ = false;
    state_ = State::kUnquoted;
    return label_next(text, is_end, spans);
  }
  const size_t n = count_while(text, is_in_name);
  spans.add(n, Role::kKey, depth());
  return n;
}

void Xml::end_tag(bool is_empty) {
  state_ = State::kText;
  is_in_end_tag_ = false;
  if (!is_end_tag_) {
    if (is_empty || (is_html_ && is_one_of(kVoid, name_))) {
      if (n_deeper_ > 0) {
        --n_deeper_;
      } else if (!open_.empty()) {
        open_.pop_back();
      }
    } else if (is_html_ && is_one_of(kRawText, name_)) {
      state_ = State::kRaw;
    }
  }
  is_done_ = is_block_ && is_outside();
}

size_t Xml::label_quoted(std::string_view text, Spans& spans) {
  const int d = depth();
  size_t at = 0;
  while (at < text.size() && text[at] != quote_) {
    const std::string_view rest = text.substr(at);
    const size_t n_space = n_spaces(rest);
    spans.add(n_space, Role::kSpace, d, true);
    const size_t n_word =
        count_while(rest.substr(n_space), [this](char c) { return !is_space(c) && c != quote_; });
    spans.add(n_word, Role::kValue, d, true);
    at += n_space + n_word;
  }
  if (at < text.size()) {
    spans.add(1, Role::kDelim, d, true);
    is_behind_equals_ = false;
    state_ = State::kTag;
    return at + 1;
  }
  return at;
}

size_t Xml::label_doctype(std::string_view text, Spans& spans) {
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '[' || c == ']') {
      is_in_subset_ = c == '[';
    } else if (c == '>' && !is_in_subset_) {
      return delim(at + 1, State::kText, spans);
    }
  }
  return delim(text.size(), State::kDoctype, spans);
}

size_t Xml::label_until(std::string_view text, bool is_end, Spans& spans) {
  const size_t end = text.find(until_);
  if (end != std::string_view::npos) {
    return delim(end + until_.size(), State::kText, spans);
  }
  const size_t n_held = is_end ? 0 : until_.size() - 1;
  return delim(text.size() - std::min(n_held, text.size()), State::kUntil, spans);
}

size_t Xml::label_cdata(std::string_view text, bool is_end, Spans& spans) {
  constexpr std::string_view kEnd = "]]>";
  if (text.starts_with(kEnd)) {
    return delim(kEnd.size(), State::kText, spans);
  }
  const size_t end = text.find(kEnd);
  const size_t n_held = is_end ? 0 : kEnd.size() - 1;
  const size_t n =
      end != std::string_view::npos ? end : text.size() - std::min(n_held, text.size());
  add_words(text.substr(0, n), spans);
  return n;
}

// The text of an element without tags, up to its end tag.
size_t Xml::label_raw(std::string_view text, bool is_end, Spans& spans) {
  const size_t n_needed = name_.size() + 2;
  size_t at = 0;
  for (at = text.find('<'); at != std::string_view::npos; at = text.find('<', at + 1)) {
    const std::string_view rest = text.substr(at, n_needed);
    if (rest.size() < n_needed && !is_end) {
      break;
    }
    if (rest.size() == n_needed && rest[1] == '/' && equals_in_any_case(rest.substr(2), name_)) {
      state_ = State::kText;
      break;
    }
  }
  const size_t n = std::min(at, text.size());
  add_words(text.substr(0, n), spans);
  return n > 0 || state_ == State::kRaw ? n : label_markup(text, is_end, spans);
}

}  // namespace

std::unique_ptr<Labeller> make_xml() {
  return std::make_unique<Xml>("xml", /*is_block=*/false);
}

std::unique_ptr<Labeller> make_html() {
  return std::make_unique<Xml>("html", /*is_block=*/false);
}

std::unique_ptr<Labeller> make_element_block(std::string_view name) {
  return std::make_unique<Xml>(name, /*is_block=*/true);
}

}  // namespace winnow::roles
