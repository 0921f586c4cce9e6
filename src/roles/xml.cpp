// xml, html: "<", "</", "/>", ">", "=" and quotes DELIM; names of elements and attributes KEY; values of attributes, text
// and CDATA VALUE; all white space in them WS; comments, declarations and instructions DELIM. What stands outside all
// elements is PROSE. Depth counts the elements around a byte, its own tag included.
//
// A "<" that begins no tag is text. HTML's elements without end tags are known, and an end tag closes all up to the one
// that it names, if that is among the innermost; one that names none is passed over.

#include <algorithm>
#include <memory>
#include <string>

#include "roles/blocks.h"
#include "roles/bytes.h"
#include "roles/elements.h"
#include "roles/formats.h"
#include "roles/markup.h"

namespace winnow::roles {
namespace {

constexpr size_t kLongestName = 256;  // longer ones are cut

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
  void add_words(std::string_view text, bool is_in_string, Spans& spans);
  void end_tag(bool is_empty);

  int depth() const { return open_.depth() + (is_in_end_tag_ ? 1 : 0); }
  bool is_outside() const { return open_.depth() == 0; }

  bool is_html_;
  bool is_block_;
  State state_ = State::kText;
  OpenElements open_;
  std::string name_;     // of the tag
  HtmlElement element_;  // what HTML knows of it
  bool is_end_tag_ = false;
  bool is_in_end_tag_ = false;  // its element is closed already
  bool is_behind_equals_ = false;
  char quote_ = '"';
  std::string_view until_;
  bool is_in_subset_ = false;  // of a DOCTYPE
  bool is_done_ = false;
};

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
void Xml::add_words(std::string_view text, bool is_in_string, Spans& spans) {
  const int d = depth();
  while (!text.empty()) {
    const size_t n_space = n_spaces(text);
    spans.add(n_space, Role::kSpace, d, is_in_string);
    text.remove_prefix(n_space);
    const size_t n_word = count_while(text, [](char c) { return !is_space(c); });
    spans.add(n_word, Role::kValue, d, is_in_string);
    text.remove_prefix(n_word);
  }
}

size_t Xml::label_text(std::string_view text, bool is_end, Spans& spans) {
  const size_t n = std::min(text.find('<'), text.size());
  if (!is_outside()) {
    add_words(text.substr(0, n), /*is_in_string=*/false, spans);
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
  if (text.size() < kMarkupSniffed && !is_end) {
    return 0;
  }
  if (is_block_ && text.starts_with("<|")) {  // of a chat template: the element was not finished
    is_done_ = true;
    return 0;
  }
  const auto [kind, n_mark] = markup_at(text);
  switch (kind) {
    case Markup::kComment:
      until_ = "-->";
      return delim(n_mark, State::kUntil, spans);
    case Markup::kInstruction:
      until_ = "?>";
      return delim(n_mark, State::kUntil, spans);
    case Markup::kCdata:
      return delim(n_mark, State::kCdata, spans);
    case Markup::kDeclaration:
      is_in_subset_ = false;
      return delim(n_mark, State::kDoctype, spans);
    case Markup::kText:
      spans.add(n_mark, is_outside() ? Role::kProse : Role::kValue, depth());
      return n_mark;
    case Markup::kTag:
    case Markup::kEndTag:
      break;
  }
  const std::string_view behind = text.substr(n_mark);
  const size_t n_name = count_while(behind.substr(0, kLongestName), is_in_name);
  if (n_name == behind.size() && !is_end) {
    return 0;
  }
  begin_tag(behind.substr(0, n_name), kind == Markup::kEndTag);
  spans.add(n_mark, Role::kDelim, depth());
  spans.add(n_name, Role::kKey, depth());
  return n_mark + n_name;
}

void Xml::begin_tag(std::string_view name, bool is_end_tag) {
  name_ = name;
  if (is_html_) {
    std::ranges::transform(name_, name_.begin(), lower);
    element_ = html_element(name_);
  }
  is_end_tag_ = is_end_tag;
  is_in_end_tag_ = is_end_tag && open_.close(name_);
  if (!is_end_tag) {
    open_.open(name_, element_.is_ended_by_next);
  }
  is_behind_equals_ = false;
  state_ = State::kTag;
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
    if (is_empty || element_.is_void) {
      open_.close_last();
    } else if (element_.holds_raw_text) {
      state_ = State::kRaw;
    }
  }
  is_done_ = is_block_ && is_outside();
}

size_t Xml::label_quoted(std::string_view text, Spans& spans) {
  const size_t n = std::min(text.find(quote_), text.size());
  add_words(text.substr(0, n), /*is_in_string=*/true, spans);
  if (n == text.size()) {
    return n;
  }
  spans.add(1, Role::kDelim, depth(), /*is_in_string=*/true);
  is_behind_equals_ = false;
  state_ = State::kTag;
  return n + 1;
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

// The bytes before `mark`; without it, those that cannot be part of it.
size_t n_before(std::string_view text, std::string_view mark, bool is_end) {
  const size_t end = text.find(mark);
  const size_t n_held = is_end ? 0 : std::min(mark.size() - 1, text.size());
  return end != std::string_view::npos ? end : text.size() - n_held;
}

size_t Xml::label_until(std::string_view text, bool is_end, Spans& spans) {
  const size_t n = n_before(text, until_, is_end);
  const bool is_there = text.substr(n).starts_with(until_);
  return delim(is_there ? n + until_.size() : n, is_there ? State::kText : State::kUntil, spans);
}

size_t Xml::label_cdata(std::string_view text, bool is_end, Spans& spans) {
  constexpr std::string_view kEnd = "]]>";
  if (text.starts_with(kEnd)) {
    return delim(kEnd.size(), State::kText, spans);
  }
  const size_t n = n_before(text, kEnd, is_end);
  add_words(text.substr(0, n), /*is_in_string=*/false, spans);
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
  add_words(text.substr(0, n), /*is_in_string=*/false, spans);
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
