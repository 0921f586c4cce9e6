// toml: names of tables HEADER, their brackets DELIM; keys KEY, also in inline tables, with their quotes and dots; "=" and
// "[]{}," DELIM; values VALUE, strings with their quotes; comments PROSE; white space between tokens WS. Depth is the
// number of names in the table's header, and one more in each bracket.

#include <algorithm>
#include <memory>
#include <vector>

#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

// The length of a string that `text` begins with, or of its part in this line.
size_t string_length(std::string_view text, std::string_view quote) {
  for (size_t i = quote.size(); i < text.size(); ++i) {
    if (text[i] == '\\' && quote[0] == '"') {
      ++i;
    } else if (text.substr(i).starts_with(quote)) {
      i += quote.size();
      while (quote.size() == 3 && i < text.size() && text[i] == quote[0]) {
        ++i;  // up to two more quotes may stand before the last three
      }
      return i;
    } else if (text[i] == '\n' && quote.size() == 1) {
      return i;
    }
  }
  return std::string_view::npos;
}

std::string_view quote_of(std::string_view text) {
  return text.starts_with(R"(""")") || text.starts_with("'''") ? text.substr(0, 3)
                                                               : text.substr(0, 1);
}

// Whether a line that is not indented begins with "key =".
bool begins_with_key(std::string_view line) {
  const size_t n =
      count_while(line, [](char c) { return is_word_byte(c) || c == '-' || c == '.'; });
  return n > 0 && line.substr(n + n_spaces(line.substr(n))).starts_with('=');
}

// The first byte of `text` outside quotes that `is_end` holds for, which is shown each of these; its size where there is none.
template <typename Predicate>
size_t find_unquoted(std::string_view text, Predicate is_end) {
  char quote = '\0';
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != '\0') {
      quote = c == quote ? '\0' : quote;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (is_end(c)) {
      return i;
    }
  }
  return text.size();
}

class Toml final : public LineLabeller {
 protected:
  void label_line(std::string_view line, Spans& spans) override {
    LineLabels labels(line, spans);
    if (!is_table_.empty() && open_quote_.empty() && begins_with_key(line)) {
      is_table_.clear();  // a bracket was not closed
    }
    if (!open_quote_.empty()) {
      label_string(labels);
    } else if (is_table_.empty()) {
      labels.add_space(n_names_);
      if (labels.next() == '[') {
        label_header(labels);
      } else if (!labels.is_at_end() && labels.next() != '#') {
        label_key(labels);
      }
    }
    while (!labels.is_at_end()) {
      label_value(labels);
    }
    is_key_next_ = !is_table_.empty() && is_key_next_;
  }

 private:
  static constexpr size_t kDeepest = size_t{1} << 16;  // brackets

  int depth() const { return n_names_ + static_cast<int>(is_table_.size()); }

  void label_header(LineLabels& labels) {
    labels.add(labels.rest().starts_with("[[") ? 2 : 1, Role::kDelim);
    n_names_ = 1;
    const size_t n = find_unquoted(labels.rest(), [this](char c) {
      n_names_ += c == '.' ? 1 : 0;
      return c == ']' || c == '\n';
    });
    labels.add_trimmed(n, Role::kHeader);
    labels.add(count_while(labels.rest(), [](char c) { return c == ']'; }), Role::kDelim);
  }

  // A key up to its "=".
  void label_key(LineLabels& labels) {
    const size_t n = find_unquoted(labels.rest(), [](char c) {
      return c == '=' || c == '\n' || c == '#' || c == '}' || c == ',';
    });
    labels.add_trimmed(n, Role::kKey, depth());
    labels.add(labels.next() == '=' ? 1 : 0, Role::kDelim, depth());
    is_key_next_ = false;
  }

  void label_string(LineLabels& labels) {
    // As though the string began with this line.
    const std::string_view rest = labels.rest();
    size_t n = 0;
    while (n < rest.size() && !rest.substr(n).starts_with(open_quote_)) {
      n += rest[n] == '\\' && open_quote_[0] == '"' ? 2 : 1;
    }
    if (n >= rest.size()) {
      labels.add(rest.size(), Role::kValue, depth(), /*is_in_string=*/true);
      return;
    }
    n += count_while(rest.substr(n), [this](char c) { return c == open_quote_[0]; });
    labels.add(n, Role::kValue, depth(), true);
    open_quote_ = {};
  }

  // What a line goes on with, behind a key or in a bracket.
  void label_value(LineLabels& labels) {
    const std::string_view rest = labels.rest();
    const char c = rest[0];
    if (is_space(c)) {
      labels.add_space(depth());
    } else if (c == '#') {
      labels.add_trimmed(rest.size(), Role::kProse, depth());
    } else if (is_key_next_ && c != '}' && c != ',') {
      label_key(labels);
    } else if (c == '"' || c == '\'') {
      const std::string_view quote = quote_of(rest);
      const size_t n = string_length(rest, quote);
      labels.add(n, Role::kValue, depth(), true);
      if (n == std::string_view::npos && quote.size() == 3) {
        open_quote_ = c == '"' ? R"(""")" : "'''";
      }
    } else if (c == '[' || c == '{') {
      if (is_table_.size() < kDeepest) {
        is_table_.push_back(c == '{');
      }
      labels.add(1, Role::kDelim, depth());
      is_key_next_ = c == '{';
    } else if (c == ']' || c == '}') {
      labels.add(1, Role::kDelim, depth());
      if (!is_table_.empty()) {
        is_table_.pop_back();
      }
      is_key_next_ = false;
    } else if (c == ',' || c == '=') {
      labels.add(1, Role::kDelim, depth());
      is_key_next_ = c == ',' && !is_table_.empty() && is_table_.back();
    } else {
      labels.add(rest.find_first_of(" \t\r\n#,]}"), Role::kValue, depth());
    }
  }

  int n_names_ = 0;             // in the header of the table
  std::vector<bool> is_table_;  // of the open brackets
  bool is_key_next_ = false;
  std::string_view open_quote_;  // of a string that goes on in the next line
};

}  // namespace

std::unique_ptr<Labeller> make_toml() {
  return std::make_unique<Toml>();
}

}  // namespace winnow::roles
