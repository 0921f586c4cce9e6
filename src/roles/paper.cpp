// paper: the labels of the study of role-aware eviction, to redo its tables. They differ from the other formats on purpose.
//
// A text that is JSON is labelled as json, what follows it PROSE. One that begins with "<", holds ">" and no table is XML
// to its end: tags KEY, all else VALUE. Any other is PROSE, but for fences (DELIM) of json and xml, and tables: bars and
// rule row DELIM, words of the first row HEADER, other words VALUE, spaces between them WS. JSON that is not complete is
// PROSE altogether.

#include <algorithm>
#include <memory>
#include <string_view>

#include "roles/blocks.h"
#include "roles/bytes.h"
#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

bool is_rule_row(std::string_view line) {
  return line.find("---") != std::string_view::npos && line.find('|') != std::string_view::npos &&
         line.find_first_not_of("|-: \t\r\n") == std::string_view::npos;
}

std::string_view line_of(std::string_view text) {
  const size_t end = text.find('\n');
  return text.substr(0, end == std::string_view::npos ? end : end + 1);
}

bool has_table(std::string_view text) {
  for (std::string_view line; !text.empty(); text.remove_prefix(line.size())) {
    line = line_of(text);
    if (is_rule_row(line)) {
      return true;
    }
  }
  return false;
}

void label_xml(std::string_view text, Spans& spans) {
  while (!text.empty()) {
    const bool is_tag = text[0] == '<';
    const size_t end = text.find(is_tag ? '>' : '<');
    const size_t n =
        std::min(end == std::string_view::npos ? text.size() : end + (is_tag ? 1 : 0), text.size());
    spans.add(n, is_tag ? Role::kKey : Role::kValue);
    text.remove_prefix(n);
  }
}

void label_row(std::string_view line, Role role, Spans& spans) {
  LineLabels labels(line, spans);
  while (!labels.is_at_end()) {
    labels.add_space();
    labels.add(count_while(labels.rest(), [](char c) { return c != '|' && !is_space(c); }), role);
    labels.add(labels.next() == '|' ? 1 : 0, Role::kDelim);
  }
}

// Labels the JSON that `text` begins with, if it is complete.
void label_json(std::string_view text, Spans& spans) {
  Spans found;
  const std::unique_ptr<Labeller> json = make_json_block();
  json->label(text, /*is_end=*/true, found);
  if (found.all().empty() || found.all().back().label.depth != 1 ||
      found.all().back().label.role != Role::kDelim) {
    return;
  }
  for (const Span& span : found.all()) {
    spans.add(span.end - span.begin, span.label.role, span.label.depth, span.label.is_in_string);
  }
}

// Text with fences and tables.
void label_mixed(std::string_view text, Spans& spans) {
  bool is_in_table = false;
  while (!text.empty()) {
    std::string_view line = line_of(text);
    const std::string_view behind = text.substr(line.size());
    const bool is_json = line.starts_with("```json");
    const bool is_fence = is_json || line.starts_with("```xml");
    const size_t end = is_fence ? behind.find("\n```") : std::string_view::npos;
    if (end != std::string_view::npos) {
      spans.add(line.size(), Role::kDelim);
      const size_t before = spans.position();
      if (is_json) {
        label_json(behind.substr(0, end + 1), spans);
      } else {
        label_xml(behind.substr(0, end + 1), spans);
      }
      spans.add(end + 1 - (spans.position() - before), Role::kProse);
      spans.add(3, Role::kDelim);
      text = behind.substr(end + 4);
      continue;
    }
    const bool is_row = line.find('|') != std::string_view::npos;
    if (is_row && is_rule_row(line)) {
      spans.add(line.size(), Role::kDelim);
    } else if (is_row && (is_in_table || is_rule_row(line_of(behind)))) {
      label_row(line, is_in_table ? Role::kValue : Role::kHeader, spans);
    } else {
      spans.add(line.size(), Role::kProse);
    }
    is_in_table = is_row && (is_in_table || is_rule_row(line) || is_rule_row(line_of(behind)));
    text = behind;
  }
}

class Paper final : public Labeller {
 public:
  void label(std::string_view text, bool is_end, Spans& spans) override {
    if (!is_end || text.empty()) {
      return;
    }
    const size_t before = spans.position();
    const size_t n_space = n_spaces(text);
    const std::string_view content = text.substr(n_space);
    if (content.starts_with('{') || content.starts_with('[')) {
      Spans found;  // nothing is labelled where the JSON is not complete
      label_json(content, found);
      if (found.position() > 0) {
        spans.add(n_space, Role::kSpace);
        label_json(content, spans);
        const std::string_view rest = text.substr(spans.position() - before);
        spans.add(rest.size(), is_blank(rest) ? Role::kSpace : Role::kProse);
        return;
      }
    }
    if (content.starts_with('<') && content.find('>') != std::string_view::npos &&
        !has_table(text)) {
      label_xml(text, spans);
      return;
    }
    label_mixed(text, spans);
  }
};

}  // namespace

std::unique_ptr<Labeller> make_paper() {
  return std::make_unique<Paper>();
}

}  // namespace winnow::roles
