// yaml: keys KEY, also in flow collections, with their quotes; ": - ? , [ ] { }", marks of documents, anchors, tags and
// heads of block scalars DELIM; scalars VALUE, with their quotes and the white space between their words; comments PROSE;
// white space around tokens WS. Depth is the number of collections around a byte.
//
// Lines are read one by one: what goes on in the next line (block, quoted and plain scalars, flow collections) is kept as
// state. Tabs count as one column of indentation.

#include <algorithm>
#include <memory>
#include <vector>

#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

constexpr size_t kDeepest = size_t{1} << 16;

// Whether `text` begins with `mark` and white space, or ends behind it.
bool begins_with_mark(std::string_view text, std::string_view mark) {
  return text.starts_with(mark) && (text.size() == mark.size() || is_space(text[mark.size()]));
}

// The length of a plain scalar: up to ": ", " #" or the end; in flow collections also up to their punctuation.
size_t plain_length(std::string_view text, bool is_in_flow) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const char next = i + 1 < text.size() ? text[i + 1] : ' ';
    if ((c == ':' &&
         (is_space(next) || (is_in_flow && (next == ',' || next == ']' || next == '}')))) ||
        (c == '#' && i > 0 && is_space(text[i - 1])) || c == '\n' ||
        (is_in_flow && (c == ',' || c == '[' || c == ']' || c == '{' || c == '}'))) {
      return i;
    }
  }
  return text.size();
}

// The length of what is left of a quoted scalar with its last quote; npos where it goes on in the next line.
size_t quoted_length(std::string_view text, char quote) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && quote == '"') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '\'' && i + 1 < text.size() && text[i + 1] == '\'') {
        ++i;
      } else {
        return i + 1;
      }
    }
  }
  return std::string_view::npos;
}

class Yaml final : public LineLabeller {
 protected:
  void label_line(std::string_view line, Spans& spans) override {
    LineLabels labels(line, spans);
    if (quote_ != '\0') {
      label_quoted(labels);
      label_rest(labels);
      return;
    }
    const size_t column = count_while(line, [](char c) { return c == ' ' || c == '\t'; });
    const bool is_empty = is_blank(line);
    if (is_scalar_block_) {
      if (is_empty || static_cast<int>(column) > scalar_parent_) {
        labels.add(is_empty ? line.size() : column, Role::kSpace, depth());
        labels.add_trimmed(labels.rest().size(), Role::kValue, depth());
        return;
      }
      is_scalar_block_ = false;
    }
    if (is_empty) {
      labels.add(line.size(), Role::kSpace, depth());
      return;
    }
    const std::string_view content = line.substr(column);
    if (column == 0 && (begins_with_mark(line, "---") || begins_with_mark(line, "..."))) {
      collections_.clear();
      n_flow_ = 0;
      plain_parent_ = -1;
      labels.add(3, Role::kDelim);
      label_rest(labels);
      return;
    }
    if (column == 0 && content[0] == '%' && collections_.empty()) {
      labels.add_trimmed(line.size(), Role::kDelim);
      return;
    }
    labels.add(column, Role::kSpace, depth());
    if (content[0] == '#') {
      labels.add_trimmed(line.size(), Role::kProse, depth());
      return;
    }
    if (n_flow_ > 0 && column == 0 && is_key(content)) {
      n_flow_ = 0;  // a bracket was not closed
    }
    if (n_flow_ == 0) {
      if (plain_parent_ >= 0 && static_cast<int>(column) >= plain_parent_) {
        const size_t n = content.find(" #");
        labels.add_trimmed(n, Role::kValue, depth());
        label_rest(labels);
        return;
      }
      plain_parent_ = -1;
      label_block(labels, static_cast<int>(column));
    }
    label_rest(labels);
  }

 private:
  struct Collection {
    int column;
    bool is_sequence;
  };

  int depth() const { return static_cast<int>(collections_.size()) + n_flow_; }

  // Leaves the collections that an entry at `column` does not belong to, and enters its own.
  void enter(int column, bool is_sequence) {
    while (!collections_.empty() && (collections_.back().column > column ||
                                     (collections_.back().column == column &&
                                      collections_.back().is_sequence && !is_sequence))) {
      collections_.pop_back();
    }
    const bool is_inside = !collections_.empty() && collections_.back().column == column &&
                           collections_.back().is_sequence == is_sequence;
    if (!is_inside && collections_.size() < kDeepest) {
      collections_.push_back({column, is_sequence});
    }
  }

  // Whether a line's content begins with a key and its colon.
  static bool is_key(std::string_view text) {
    size_t n = 0;
    if (text[0] == '"' || text[0] == '\'') {
      n = quoted_length(text.substr(1), text[0]);
      if (n == std::string_view::npos) {
        return false;
      }
      ++n;
      n += n_spaces(text.substr(n));
    } else {
      n = plain_length(text, /*is_in_flow=*/false);
    }
    return n < text.size() && begins_with_mark(text.substr(n), ":");
  }

  // The entries that begin in a line, up to where a value begins.
  void label_block(LineLabels& labels, int column) {
    const size_t n_all = labels.rest().size() + static_cast<size_t>(column);
    const auto here = [&] { return static_cast<int>(n_all - labels.rest().size()); };
    while (begins_with_mark(labels.rest(), "-") || begins_with_mark(labels.rest(), "?")) {
      enter(here(), labels.next() == '-');
      parent_ = here();
      labels.add(1, Role::kDelim, depth());
      labels.add_space(depth());
    }
    label_properties(labels);
    if (labels.is_at_end() || labels.next() == '#' || labels.next() == '[' ||
        labels.next() == '{') {
      return;
    }
    const bool is_value_of_complex_key = begins_with_mark(labels.rest(), ":");
    if (!is_value_of_complex_key && !is_key(labels.rest())) {
      // A scalar of its own line belongs to what is less indented.
      return;
    }
    const int column_of_key = here();
    enter(column_of_key, /*is_sequence=*/false);
    parent_ = column_of_key;
    if (labels.next() == '"' || labels.next() == '\'') {
      labels.add(1 + quoted_length(labels.rest().substr(1), labels.next()), Role::kKey, depth(),
                 /*is_in_string=*/true);
      labels.add_space(depth());
    } else {
      labels.add_trimmed(plain_length(labels.rest(), false), Role::kKey, depth());
    }
    labels.add(1, Role::kDelim, depth());
  }

  // Anchors and tags.
  void label_properties(LineLabels& labels) {
    while (labels.next() == '&' || labels.next() == '!') {
      labels.add(count_while(labels.rest(), [](char c) { return !is_space(c); }), Role::kDelim,
                 depth());
      labels.add_space(depth());
    }
  }

  void label_quoted(LineLabels& labels) {
    const std::string_view rest = labels.rest();
    const size_t n = quoted_length(rest, quote_);
    labels.add(n, Role::kValue, depth(), /*is_in_string=*/true);
    if (n != std::string_view::npos) {
      quote_ = '\0';
    }
  }

  // Values, flow collections and comments, to the end of the line.
  void label_rest(LineLabels& labels) {
    bool is_first = true;
    while (!labels.is_at_end()) {
      labels.add_space(depth());
      if (!labels.is_at_end()) {
        label_token(labels, is_first);
      }
      is_first = false;
    }
  }

  void label_token(LineLabels& labels, bool is_first) {
    const std::string_view rest = labels.rest();
    const char c = labels.next();
    if (c == '#') {
      labels.add_trimmed(rest.size(), Role::kProse, depth());
    } else if (c == '&' || c == '!') {
      label_properties(labels);
    } else if ((c == '|' || c == '>') && n_flow_ == 0) {
      labels.add(count_while(rest, [](char each) { return !is_space(each); }), Role::kDelim,
                 depth());
      is_scalar_block_ = true;
      scalar_parent_ = collections_.empty() ? -1 : parent_;
    } else if (c == '"' || c == '\'') {
      const bool is_name = n_flow_ > 0 && is_key_in_flow(rest);
      labels.add(1, is_name ? Role::kKey : Role::kValue, depth(), /*is_in_string=*/true);
      if (is_name) {
        labels.add(quoted_length(labels.rest(), c), Role::kKey, depth(), true);
        labels.add_space(depth());
        labels.add(1, Role::kDelim, depth());
      } else {
        quote_ = c;
        label_quoted(labels);
      }
    } else if (c == '[' || c == '{') {
      n_flow_ += n_flow_ < static_cast<int>(kDeepest) ? 1 : 0;
      labels.add(1, Role::kDelim, depth());
    } else if (n_flow_ > 0 && (c == ']' || c == '}' || c == ',')) {
      labels.add(1, Role::kDelim, depth());
      n_flow_ -= c == ',' ? 0 : 1;
    } else if (c == ':' && n_flow_ > 0 && plain_length(rest, true) == 0) {
      labels.add(1, Role::kDelim, depth());
    } else if (n_flow_ > 0) {
      const size_t n = std::max<size_t>(plain_length(rest, true), 1);
      const bool is_name = n < rest.size() && rest[n] == ':';
      labels.add_trimmed(n, is_name ? Role::kKey : Role::kValue, depth());
    } else {
      const size_t n = rest.find(" #");
      labels.add_trimmed(n, Role::kValue, depth());
      plain_parent_ = is_first ? (collections_.empty() ? 0 : parent_ + 1) : plain_parent_;
    }
  }

  // Whether the quoted scalar that `text` begins with is followed by a colon.
  static bool is_key_in_flow(std::string_view text) {
    size_t n = quoted_length(text.substr(1), text[0]);
    if (n == std::string_view::npos) {
      return false;
    }
    ++n;
    n += n_spaces(text.substr(n));
    return n < text.size() && text[n] == ':';
  }

  std::vector<Collection> collections_;
  int n_flow_ = 0;                // open brackets
  int parent_ = -1;               // column of the entry that the last value belongs to
  char quote_ = '\0';             // of a scalar that goes on in the next line
  bool is_scalar_block_ = false;  // of lines more indented than scalar_parent_
  int scalar_parent_ = -1;
  int plain_parent_ =
      -1;  // a plain scalar goes on in lines that are indented so far; -1: there is none
};

}  // namespace

std::unique_ptr<Labeller> make_yaml() {
  return std::make_unique<Yaml>();
}

}  // namespace winnow::roles
