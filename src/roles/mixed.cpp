// markdown, chat, auto: text in blocks, each in its own format.
//
// Headings and marks of speakers HEADER; fences and rules DELIM, with the fence's language inside; tables: cells of the
// first row HEADER, of others VALUE, bars and the rule row DELIM; white space around cells and blank lines WS; all other
// text PROSE, with the white space in it. Front matter is YAML. Elements, and in chat and auto JSON, that begin a line are
// blocks of their format. Outside these, depth is the level of the heading that a text stands under.
//
// auto is the format that detect() finds where the whole text has one; otherwise blocks. What a line begins with is looked
// for before it is believed, at most so far that the work stays linear.

#include <algorithm>
#include <memory>
#include <optional>
#include <string>

#include "roles/block_starts.h"
#include "roles/blocks.h"
#include "roles/bytes.h"
#include "roles/detect.h"
#include "roles/formats.h"
#include "roles/lines.h"
#include "roles/markdown_lines.h"

namespace winnow::roles {
namespace {

struct MixedOptions {
  bool is_detecting = false;  // whole texts of one format are told from their beginnings
  bool has_json = false;      // lines may begin with JSON
  bool has_speakers = false;  // lines may begin with "User:"
};

class Mixed final : public Labeller {
 public:
  Mixed(std::string_view name, MixedOptions options) : name_(name), options_(options) {}

  void label(std::string_view text, bool is_end, Spans& spans) override {
    for (bool goes_on = true; goes_on;) {
      const size_t before = spans.position();
      goes_on =
          inner_ != nullptr ? label_block(text, is_end, spans) : label_line(text, is_end, spans);
      const size_t n = spans.position() - before;
      if (n > 0) {
        is_at_line_begin_ = text[n - 1] == '\n';
      }
      text.remove_prefix(n);
    }
  }

 private:
  enum class BlockEnd { kNone, kFence, kOwn };

  bool label_line(std::string_view text, bool is_end, Spans& spans);
  bool label_start(std::string_view text, bool is_end, Spans& spans);
  bool label_block(std::string_view text, bool is_end, Spans& spans);
  bool label_fenced(std::string_view text, bool is_end, Spans& spans);
  void label_text(std::string_view line, std::string_view next, Spans& spans);
  void begin_block(std::string_view format, std::unique_ptr<Labeller> inner, BlockEnd end,
                   Spans& spans);
  void end_block(Spans& spans);

  bool is_closing(std::string_view line) const;

  std::string_view name_;
  MixedOptions options_;
  bool is_begun_ = false;
  bool is_cut_ = false;  // the last line was too long
  bool is_at_line_begin_ = true;
  bool is_behind_blank_ = true;  // the last line was blank, or none
  bool is_in_table_ = false;
  bool has_text_ = false;  // some line was no block's
  int level_ = 0;          // of the last heading
  std::unique_ptr<Labeller> inner_;
  BlockEnd block_end_ = BlockEnd::kNone;
  Fence fence_{};  // that the block ends with
  BlockStarts starts_;
};

void Mixed::begin_block(std::string_view format, std::unique_ptr<Labeller> inner, BlockEnd end,
                        Spans& spans) {
  spans.begin_block(format);
  inner_ = std::move(inner);
  block_end_ = end;
}

void Mixed::end_block(Spans& spans) {
  inner_.reset();
  spans.begin_block(name_);
  is_behind_blank_ = true;
  is_cut_ = false;
}

// Labels more of the block; false where more text is needed.
bool Mixed::label_block(std::string_view text, bool is_end, Spans& spans) {
  if (block_end_ == BlockEnd::kFence) {
    return label_fenced(text, is_end, spans);
  }
  inner_->label(text, is_end, spans);
  if (inner_->is_done()) {
    end_block(spans);
    return true;
  }
  return false;
}

bool Mixed::is_closing(std::string_view line) const {
  if (fence_.mark == '-') {
    return without_trailing_space(line) == "---";
  }
  const std::optional<Fence> fence = fence_of(line);
  return fence && fence->mark == fence_.mark && fence->n_marks >= fence_.n_marks &&
         fence->language.empty();
}

bool Mixed::label_fenced(std::string_view text, bool is_end, Spans& spans) {
  size_t n_inside = 0;  // bytes of lines that do not close the fence
  std::string_view closing;
  bool is_line_begin = is_at_line_begin_;
  while (n_inside < text.size()) {
    const std::optional<std::string_view> line = first_line(text.substr(n_inside), is_end);
    if (!line) {
      break;
    }
    if (is_line_begin && is_closing(*line)) {
      closing = *line;
      break;
    }
    n_inside += line->size();
    is_line_begin = line->ends_with('\n');
  }
  const size_t before = spans.position();
  inner_->label(text.substr(0, n_inside), is_end || !closing.empty(), spans);
  if (closing.empty() || spans.position() - before < n_inside) {
    return false;
  }
  end_block(spans);
  LineLabels labels(closing, spans);
  labels.add_space(level_);
  labels.add_trimmed(labels.rest().size(), Role::kDelim, level_);
  return true;
}

// What only the beginning of a text can be; false where more text is needed.
bool Mixed::label_start(std::string_view text, bool is_end, Spans& spans) {
  if (text.size() < kSniffed && !is_end) {
    return false;
  }
  is_begun_ = true;
  if (text.starts_with(kByteOrderMark)) {
    spans.add(kByteOrderMark.size(), Role::kSpace);
    text.remove_prefix(kByteOrderMark.size());
  }
  const std::string_view first = text.substr(0, text.find('\n'));
  if (without_trailing_space(first) == "---" &&
      text.substr(0, kSniffed).find("\n---") != std::string_view::npos) {
    spans.add(without_end(first).size(), Role::kDelim);
    spans.add(first.size() + 1 - without_end(first).size(), Role::kSpace);
    fence_ = {'-', 3, "yaml"};
    is_at_line_begin_ = true;
    begin_block("yaml", make_yaml(), BlockEnd::kFence, spans);
    return true;
  }
  if (!options_.is_detecting) {
    return true;
  }
  const std::string_view name = detect(text);
  if (name == "chat") {
    options_.has_speakers = true;
  } else if (name == "xml" || name == "html") {
    const size_t n_space = n_spaces(text);
    const bool is_declared =
        text.substr(n_space).starts_with("<?") || text.substr(n_space).starts_with("<!");
    if (is_declared) {
      begin_block(name, make_element_block(name), BlockEnd::kOwn, spans);
    }
  } else if (!name.empty() && name != "json") {
    begin_block(name, find_format(name).make(), BlockEnd::kNone, spans);
  }
  return true;
}

// Labels a line, or begins a block; false where more text is needed.
bool Mixed::label_line(std::string_view text, bool is_end, Spans& spans) {
  if (!is_begun_) {
    return label_start(text, is_end, spans);
  }
  const std::optional<std::string_view> line = first_line(text, is_end);
  if (!line || line->empty()) {
    return false;
  }
  const bool is_cut_here = line->size() == kLongestLine && !line->ends_with('\n');
  if (is_cut_) {
    spans.add_alike(line->size());
    is_cut_ = is_cut_here;
    return true;
  }
  if (is_blank(*line)) {
    spans.add(line->size(), Role::kSpace, level_);
    is_behind_blank_ = true;
    is_in_table_ = false;
    is_cut_ = is_cut_here;
    return true;
  }
  const std::optional<std::string_view> next = first_line(text.substr(line->size()), is_end);
  if (!next) {
    return false;
  }
  const size_t n_space = n_spaces(*line);
  const std::string_view content = text.substr(n_space);
  if (const std::optional<Fence> fence = fence_of(*line)) {
    spans.add(n_space, Role::kSpace, level_);
    const std::string_view trimmed = without_trailing_space(line->substr(n_space));
    spans.add(trimmed.size(), Role::kDelim, level_);
    spans.add(line->size() - n_space - trimmed.size(), Role::kSpace, level_);
    fence_ = *fence;
    is_at_line_begin_ = true;
    const std::string_view format = format_of_language(fence->language);
    const std::string_view inside = !format.empty() ? format : "none";
    fence_.language = {};
    begin_block(inside, fence->language.empty() ? make_detected() : find_format(inside).make(),
                BlockEnd::kFence, spans);
    return true;
  }
  size_t n_mark = mark_length(line->substr(n_space));
  if (n_mark == 0 && options_.has_speakers) {
    n_mark = speaker_length(line->substr(n_space));
  }
  if (n_mark > 0) {
    spans.add(n_space, Role::kSpace, level_);
    spans.add(n_mark, Role::kHeader, level_);
    is_behind_blank_ = true;
    return true;
  }
  const bool is_row =
      line->find('|') != std::string_view::npos && (is_in_table_ || is_rule_row(*next));
  const std::optional<bool> is_json =
      is_row || !options_.has_json ? false : starts_.begins_json(content, is_end, spans.position());
  const std::optional<bool> is_element =
      is_row || !is_json ? is_json
                         : starts_.begins_element(content, is_end, spans.position(), has_text_);
  if (!is_json || !is_element) {
    return false;
  }
  if (*is_json || *is_element) {
    spans.add(n_space, Role::kSpace, level_);
    const std::string_view format = *is_json                              ? "json"
                                    : is_html_name(element_name(content)) ? "html"
                                                                          : "xml";
    begin_block(format, *is_json ? make_json_block() : make_element_block(format), BlockEnd::kOwn,
                spans);
    return true;
  }
  // What a chat template puts behind a text begins anew.
  const size_t mark = line->find("<|", 1);
  const bool has_mark = mark != std::string_view::npos && mark_length(line->substr(mark)) > 0;
  label_text(has_mark ? line->substr(0, mark) : *line, *next, spans);
  is_behind_blank_ = false;
  is_cut_ = is_cut_here && !has_mark;
  has_text_ = true;
  return true;
}

// A line that is no block's.
void Mixed::label_text(std::string_view line, std::string_view next, Spans& spans) {
  const bool is_row = line.find('|') != std::string_view::npos;
  if (is_row && is_rule_row(next) && !is_in_table_) {
    is_in_table_ = true;
    label_row(line, Role::kHeader, level_, spans);
    return;
  }
  LineLabels labels(line, spans);
  const size_t n_space = n_spaces(line);
  if (is_in_table_) {
    if (is_rule_row(line)) {
      labels.add(n_space, Role::kSpace, level_);
      labels.add_trimmed(line.size(), Role::kDelim, level_);
      return;
    }
    if (is_row) {
      label_row(line, Role::kValue, level_, spans);
      return;
    }
    is_in_table_ = false;
  }
  labels.add(n_space, Role::kSpace, level_);
  if (const int level = heading_level(labels.rest()); level > 0 && n_space < 4) {
    level_ = level;
    labels.add_trimmed(labels.rest().size(), Role::kHeader, level_);
  } else if (is_behind_blank_ && (is_rule(next, "=", 1) || is_rule(next, "-", 2)) &&
             !is_rule(line, "-*_", 3)) {
    level_ = next.find('=') != std::string_view::npos ? 1 : 2;
    labels.add_trimmed(labels.rest().size(), Role::kHeader, level_);
  } else if (is_rule(line, "-*_=", 3)) {
    labels.add_trimmed(labels.rest().size(), Role::kDelim, level_);
  } else {
    labels.add(labels.rest().size(), Role::kProse, level_);
  }
}

}  // namespace

std::unique_ptr<Labeller> make_markdown() {
  return std::make_unique<Mixed>("markdown", MixedOptions{});
}

std::unique_ptr<Labeller> make_chat() {
  return std::make_unique<Mixed>("chat", MixedOptions{.has_json = true, .has_speakers = true});
}

std::unique_ptr<Labeller> make_auto() {
  return std::make_unique<Mixed>("auto", MixedOptions{.is_detecting = true, .has_json = true});
}

}  // namespace winnow::roles
