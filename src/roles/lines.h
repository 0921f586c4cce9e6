// Labelling by lines, for the formats whose lines mean something.
#pragma once

#include <algorithm>
#include <optional>
#include <string_view>

#include "roles/bytes.h"
#include "roles/labeller.h"

namespace winnow::roles {

// Longer lines are cut, and what is behind the cut is labelled as what is before it.
inline constexpr size_t kLongestLine = kLookahead / 2;

// The first line of `text` with its end, at most kLongestLine bytes; nullopt where more text might make it longer.
inline std::optional<std::string_view> first_line(std::string_view text, bool is_end) {
  const std::string_view searched = text.substr(0, kLongestLine);
  const size_t end = searched.find('\n');
  if (end != std::string_view::npos) {
    return searched.substr(0, end + 1);
  }
  return is_end || text.size() >= kLongestLine ? std::optional(searched) : std::nullopt;
}

// A line without its "\n" or "\r\n".
constexpr std::string_view without_end(std::string_view line) {
  if (line.ends_with('\n')) {
    line.remove_suffix(1);
  }
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

// Adds labels of one line from its beginning to its end, and keeps where it is.
class LineLabels {
 public:
  LineLabels(std::string_view line, Spans& spans) : line_(line), spans_(spans) {}

  std::string_view rest() const { return line_; }
  bool is_at_end() const { return line_.empty(); }
  char next() const { return line_.empty() ? '\0' : line_.front(); }

  void add(size_t n_bytes, Role role, int depth = 0, bool is_in_string = false) {
    n_bytes = std::min(n_bytes, line_.size());
    spans_.add(n_bytes, role, depth, is_in_string);
    line_.remove_prefix(n_bytes);
  }

  void add_space(int depth = 0) { add(n_spaces(line_), Role::kSpace, depth); }

  // Without the white space at the end of these bytes, which is WS.
  void add_trimmed(size_t n_bytes, Role role, int depth = 0) {
    const std::string_view all = line_.substr(0, n_bytes);
    const size_t n_trimmed = without_trailing_space(all).size();
    add(n_trimmed, role, depth);
    add(all.size() - n_trimmed, Role::kSpace, depth);
  }

 private:
  std::string_view line_;
  Spans& spans_;
};

// Calls label_line() for each line.
class LineLabeller : public Labeller {
 public:
  void label(std::string_view text, bool is_end, Spans& spans) final;

 protected:
  // Adds labels for the whole `line`, which includes its end.
  virtual void label_line(std::string_view line, Spans& spans) = 0;

 private:
  bool is_at_start_ = true;  // of the text
  bool is_cut_ = false;      // the last line was too long
};

}  // namespace winnow::roles
