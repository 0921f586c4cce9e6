// csv, tsv: cells of the first row HEADER, other cells VALUE; separators and quotes DELIM; ends of rows WS. A doubled quote
// is part of its cell. Depth is 0.
//
// Lines before the first row that begin with "#": names of columns (HEADER) where the mark touches them and separators
// stand between them, and then no row is a header; otherwise comments (PROSE). What separates cells of csv (comma,
// semicolon, bar or tab) is the one that the first row has most of outside quotes.

#include <algorithm>
#include <array>
#include <memory>

#include "roles/bytes.h"
#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

char most_frequent_separator(std::string_view row) {
  constexpr std::string_view kSeparators = ",;|\t";
  std::array<size_t, kSeparators.size()> counts{};
  bool is_quoted = false;
  for (const char c : row) {
    is_quoted ^= c == '"';
    const size_t which = kSeparators.find(c);
    if (!is_quoted && which != std::string_view::npos) {
      ++counts[which];
    }
  }
  return kSeparators[static_cast<size_t>(std::ranges::max_element(counts) - counts.begin())];
}

class Csv final : public Labeller {
 public:
  // '\0': the separator is told from the first row.
  explicit Csv(char separator) : separator_(separator) {}

  void label(std::string_view text, bool is_end, Spans& spans) override {
    for (size_t n = 1; n > 0 && !text.empty();) {
      n = state_ == State::kTop ? label_top(text, is_end, spans) : label_next(text, is_end, spans);
      text.remove_prefix(n);
    }
  }

 private:
  enum class State { kTop, kCellBegin, kCell, kQuoted };

  size_t label_top(std::string_view text, bool is_end, Spans& spans);
  size_t label_next(std::string_view text, bool is_end, Spans& spans);
  size_t label_quoted(std::string_view text, bool is_end, Spans& spans);

  Role cell_role() const { return is_header_ ? Role::kHeader : Role::kValue; }

  char separator_;
  State state_ = State::kTop;
  bool is_header_ = true;
  bool is_row_begun_ = false;
};

// Labels a line above the first row.
size_t Csv::label_top(std::string_view text, bool is_end, Spans& spans) {
  if (text.size() < kByteOrderMark.size() && !is_end) {
    return 0;
  }
  if (text.starts_with(kByteOrderMark)) {
    spans.add(kByteOrderMark.size(), Role::kSpace);
    return kByteOrderMark.size();
  }
  const std::optional<std::string_view> line = first_line(text, is_end);
  if (!line) {
    return 0;
  }
  const std::string_view content = without_end(*line);
  LineLabels labels(*line, spans);
  if (content.starts_with('#')) {
    const char separator = separator_ != '\0' ? separator_ : most_frequent_separator(content);
    const bool has_names = content.size() > 1 && !is_space(content[1]) &&
                           content.find(separator) != std::string_view::npos;
    if (has_names) {
      is_header_ = false;
      labels.add(1, Role::kDelim);
      while (labels.rest().size() > line->size() - content.size()) {
        labels.add(std::min(labels.rest().find(separator), without_end(labels.rest()).size()),
                   Role::kHeader);
        labels.add(labels.next() == separator ? 1 : 0, Role::kDelim);
      }
    } else {
      labels.add(content.size(), Role::kProse);
    }
    labels.add(labels.rest().size(), Role::kSpace);
    return line->size();
  }
  if (is_blank(content)) {
    labels.add(line->size(), Role::kSpace);
    return line->size();
  }
  if (separator_ == '\0') {
    separator_ = most_frequent_separator(content);
  }
  state_ = State::kCellBegin;
  return label_next(text, is_end, spans);
}

size_t Csv::label_next(std::string_view text, bool is_end, Spans& spans) {
  if (state_ == State::kQuoted) {
    return label_quoted(text, is_end, spans);
  }
  const char c = text[0];
  if (c == '\n' || c == '\r') {
    spans.add(1, Role::kSpace);
    is_header_ &= !is_row_begun_;
    is_row_begun_ = false;
    state_ = State::kCellBegin;
    return 1;
  }
  is_row_begun_ = true;
  if (c == separator_) {
    spans.add(1, Role::kDelim);
    state_ = State::kCellBegin;
    return 1;
  }
  if (c == '"' && state_ == State::kCellBegin) {
    spans.add(1, Role::kDelim, 0, /*is_in_string=*/true);
    state_ = State::kQuoted;
    return 1;
  }
  state_ = State::kCell;
  const size_t n = count_while(
      text, [this](char each) { return each != separator_ && each != '\n' && each != '\r'; });
  spans.add(n, cell_role());
  return n;
}

size_t Csv::label_quoted(std::string_view text, bool is_end, Spans& spans) {
  size_t at = 0;
  while ((at = std::min(text.find('"', at), text.size())) < text.size()) {
    if (at + 1 == text.size() && !is_end) {
      break;
    }
    if (at + 1 == text.size() || text[at + 1] != '"') {
      spans.add(at, cell_role(), 0, true);
      spans.add(1, Role::kDelim, 0, true);
      state_ = State::kCell;
      return at + 1;
    }
    at += 2;
  }
  spans.add(at, cell_role(), 0, true);
  return at;
}

}  // namespace

std::unique_ptr<Labeller> make_csv() {
  return std::make_unique<Csv>('\0');
}

std::unique_ptr<Labeller> make_tsv() {
  return std::make_unique<Csv>('\t');
}

}  // namespace winnow::roles
