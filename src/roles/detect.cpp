#include "roles/detect.h"

#include <algorithm>
#include <array>
#include <vector>

#include "roles/blocks.h"
#include "roles/bytes.h"
#include "roles/formats.h"
#include "roles/lines.h"

namespace winnow::roles {
namespace {

// Of lines that look like a format: nine of ten, since texts have exceptions.
bool are_nearly_all(size_t n, size_t n_all) {
  return n_all > 0 && n * 10 >= n_all * 9;
}

// The complete lines that are not blank.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  const bool is_whole = text.size() < kSniffed;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos && !is_whole && !lines.empty()) {
      break;
    }
    const std::string_view line = text.substr(0, end);
    if (!is_blank(line)) {
      lines.push_back(line);
    }
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
  return lines;
}

constexpr bool is_key_byte(char c) {
  return is_word_byte(c) || c == '-' || c == '.' || c == '/' || c == '$' || c == '"' || c == '\'' ||
         c == '<';
}

bool is_comment(std::string_view line) {
  const std::string_view content = line.substr(n_spaces(line));
  return content.starts_with('#') || content.starts_with(';');
}

// Lines of "key: value", items, comments and marks; keys alone must be among them. A bracket alone at a line's beginning is
// JSON's, behind a text that introduces it.
bool is_yaml(const std::vector<std::string_view>& lines) {
  size_t n_keys = 0;
  size_t n_fitting = 0;
  bool has_more = false;  // than keys and values, which a letter has too
  for (const std::string_view line : lines) {
    if (const std::string_view bare = without_trailing_space(line); bare == "{" || bare == "[") {
      return false;
    }
    std::string_view content = line.substr(n_spaces(line));
    const bool is_indented = content.size() < line.size();
    const bool is_item = content.starts_with("- ");
    while (content.starts_with("- ")) {
      content.remove_prefix(2);
      content.remove_prefix(n_spaces(content));
    }
    const size_t n_key = count_while(content, is_key_byte);
    const bool is_key = n_key > 0 && n_key < content.size() && content[n_key] == ':' &&
                        (n_key + 1 == content.size() || is_space(content[n_key + 1]));
    n_keys += is_key ? 1 : 0;
    has_more |= is_indented || is_item || content.starts_with('#') || content == "---";
    n_fitting += is_key || is_item || is_comment(line) || is_indented || content == "---" ||
                         content.starts_with("%YAML")
                     ? 1
                     : 0;
  }
  return n_keys >= (has_more ? 2 : 3) && 4 * n_keys >= lines.size() &&
         are_nearly_all(n_fitting, lines.size());
}

bool is_toml_value(std::string_view value) {
  value.remove_prefix(n_spaces(value));
  if (value.empty()) {
    return false;
  }
  const char c = value[0];
  return c == '"' || c == '\'' || c == '[' || c == '{' || is_digit(c) || c == '-' || c == '+' ||
         value.starts_with("true") || value.starts_with("false");
}

// "toml", "ini" or neither: lines of "key = value" and "[name]".
std::string_view assignments(const std::vector<std::string_view>& lines) {
  size_t n_pairs = 0;
  size_t n_sections = 0;
  size_t n_fitting = 0;
  bool is_toml = true;
  for (const std::string_view line : lines) {
    const std::string_view content = without_trailing_space(line.substr(n_spaces(line)));
    const size_t equals = content.find('=');
    const std::string_view key =
        without_trailing_space(content.substr(0, std::min(equals, content.size())));
    const bool is_pair = equals != std::string_view::npos && !key.empty() &&
                         count_while(key, is_key_byte) == key.size();
    const bool is_section = content.starts_with('[') && content.ends_with(']') &&
                            content.find('=') == std::string_view::npos &&
                            content.find(',') == std::string_view::npos &&
                            content.size() == line.size();
    n_pairs += is_pair ? 1 : 0;
    n_sections += is_section ? 1 : 0;
    n_fitting +=
        is_pair || is_section || is_comment(line) || content.size() < line.size() || content == "]"
            ? 1
            : 0;
    is_toml &= !content.starts_with(';') && (!is_pair || content.size() < line.size() ||
                                             is_toml_value(content.substr(equals + 1)));
  }
  if (n_pairs < 2 && (n_pairs == 0 || n_sections == 0)) {
    return {};
  }
  const bool fits =
      4 * (n_pairs + n_sections) >= lines.size() && are_nearly_all(n_fitting, lines.size());
  return !fits ? "" : is_toml ? "toml" : "ini";
}

size_t n_separators(std::string_view line, char separator) {
  bool is_quoted = false;
  size_t n = 0;
  for (const char c : line) {
    is_quoted ^= c == '"';
    n += !is_quoted && c == separator ? 1 : 0;
  }
  return n;
}

// Rows with as many separators as the first one. One of a kind in two lines happens in prose too.
bool are_rows(const std::vector<std::string_view>& lines, char separator) {
  const size_t n = n_separators(lines[0], separator);
  const auto n_equal = static_cast<size_t>(std::ranges::count_if(lines, [&](std::string_view line) {
    const size_t n_here = n_separators(line, separator);
    const bool is_near = n_here + 1 == n || n_here == n + 1;  // the last cell may be left out
    return n_here == n || (separator == '\t' && n_here > 0 && is_near);
  }));
  const bool is_prose = separator == ',' && lines[0].find(", ") != std::string_view::npos;
  return n > 0 && lines.size() >= ((n == 1 && separator != '\t') || is_prose ? 4 : 2) &&
         are_nearly_all(n_equal, lines.size());
}

std::string_view table(std::vector<std::string_view> lines) {
  std::erase_if(lines, [](std::string_view line) { return line.starts_with('#'); });
  if (lines.empty()) {
    return {};
  }
  if (are_rows(lines, '\t')) {
    return "tsv";
  }
  const bool is_markdown =
      lines[0].starts_with('|') ||
      (lines.size() > 1 && lines[1].find_first_not_of("|-: \r") == std::string_view::npos);
  const bool is_csv =
      are_rows(lines, ',') || are_rows(lines, ';') || (!is_markdown && are_rows(lines, '|'));
  return is_csv ? "csv" : "";
}

// What follows the comments that XML or HTML may begin with.
std::string_view behind_comments(std::string_view text) {
  while (text.starts_with("<!--")) {
    const size_t end = text.find("-->");
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 3);
    text.remove_prefix(n_spaces(text));
  }
  return text;
}

}  // namespace

bool begins_with_mark(std::string_view text) {
  return text.starts_with("<|") && text.substr(0, 64).find("|>") != std::string_view::npos;
}

size_t speaker_length(std::string_view line) {
  constexpr std::array<std::string_view, 14> kSpeakers{
      "user",     "assistant", "system",   "human",       "ai",      "tool",   "bot",
      "customer", "agent",     "function", "observation", "thought", "action", "action input"};
  const size_t colon = line.substr(0, 24).find(':');
  if (colon == std::string_view::npos) {
    return 0;
  }
  const bool is_speaker = std::ranges::any_of(kSpeakers, [&](std::string_view name) {
    return equals_in_any_case(name, line.substr(0, colon));
  });
  return is_speaker && is_letter(line[0]) && lower(line[0]) != line[0] ? colon + 1 : 0;
}

std::string_view element_name(std::string_view text) {
  if (!text.starts_with('<') || text.size() < 2 || !is_letter(text[1])) {
    return {};
  }
  const std::string_view behind = text.substr(1, 64);
  const size_t n = count_while(
      behind, [](char c) { return is_word_byte(c) || c == '-' || c == ':' || c == '.'; });
  const bool is_tag = n < behind.size() && (is_space(behind[n]) || behind[n] == '>' ||
                                            behind.substr(n).starts_with("/>"));
  return is_tag ? behind.substr(0, n) : std::string_view{};
}

bool is_html_name(std::string_view name) {
  constexpr std::array<std::string_view, 36> kNames{
      "html", "head", "body",  "div",     "p",       "span",    "a",    "table",  "tr",
      "td",   "th",   "thead", "tbody",   "ul",      "ol",      "li",   "dl",     "h1",
      "h2",   "h3",   "h4",    "h5",      "h6",      "img",     "br",   "hr",     "pre",
      "code", "b",    "i",     "details", "summary", "section", "form", "center", "article"};
  return std::ranges::any_of(kNames,
                             [&](std::string_view each) { return equals_in_any_case(each, name); });
}

bool begins_with_json(std::string_view text, size_t& n_read) {
  Spans found;
  const std::unique_ptr<Labeller> json = make_json_block();
  json->label(text, /*is_end=*/false, found);  // the last word may be cut
  n_read = found.position() + 1;
  size_t n_values = 0;
  bool has_string = false;
  bool has_key = false;
  Role last = Role::kDelim;
  for (const Span& span : found.all()) {
    const Role role = span.label.role;
    if (role == Role::kSpace) {
      continue;
    }
    const bool is_colon = role == Role::kDelim && text[span.begin] == ':';
    if ((role != Role::kDelim && last != Role::kDelim) || is_colon != (last == Role::kKey)) {
      return false;  // nothing between two values, or a colon that is behind no key
    }
    has_string |= span.label.is_in_string;
    has_key |= is_colon && span.begin > 0 && text[span.begin - 1] == '"';
    n_values += role == Role::kValue ? 1 : 0;
    last = role;
  }
  const bool is_closed =
      last == Role::kDelim && !found.all().empty() && found.all().back().label.depth == 1;
  return (is_closed || !json->is_done() || has_key) && (has_string || n_values > 1);
}

std::string_view detect(std::string_view beginning) {
  beginning = beginning.substr(0, kSniffed);
  if (beginning.starts_with(kByteOrderMark)) {
    beginning.remove_prefix(kByteOrderMark.size());
  }
  const std::string_view content = beginning.substr(n_spaces(beginning));
  size_t n_read = 0;
  if ((content.starts_with('{') || content.starts_with('[')) && begins_with_json(content, n_read)) {
    return "json";
  }
  const std::string_view declared = behind_comments(content);
  if (declared.starts_with("<?xml")) {
    return "xml";
  }
  const std::string_view doctype = "<!doctype html";
  if (equals_in_any_case(declared.substr(0, doctype.size()), doctype) ||
      equals_in_any_case(element_name(declared), "html")) {
    return "html";
  }
  if (const std::string_view name = element_name(content); !name.empty()) {
    return is_html_name(name) ? "html" : "xml";
  }
  const std::vector<std::string_view> lines = lines_of(beginning);
  if (lines.empty()) {
    return {};
  }
  const auto n_lines_where = [&](auto holds) {
    return static_cast<size_t>(std::ranges::count_if(lines, holds));
  };
  const size_t n_indented = n_lines_where([](std::string_view line) { return is_space(line[0]); });
  const size_t n_times = n_lines_where(begins_with_time);
  if (2 * n_times > lines.size() - n_indented ||
      (n_times > 0 && begins_with_time_and_level(lines[0]))) {
    return "log";
  }
  const bool has_mark = begins_with_mark(content);  // whose bars are no separators
  if (const std::string_view name = has_mark ? "" : table(lines); !name.empty()) {
    return name;
  }
  if (n_lines_where([](std::string_view line) { return speaker_length(line) > 0; }) >= 2) {
    return "chat";
  }
  if (const std::string_view name = assignments(lines); !name.empty()) {
    return name;
  }
  return is_yaml(lines) ? "yaml" : "";
}

namespace {

// A text of one format, told from its beginning.
class Detected final : public Labeller {
 public:
  void label(std::string_view text, bool is_end, Spans& spans) override {
    if (inner_ == nullptr) {
      if (text.size() < kSniffed && !is_end) {
        return;
      }
      const std::string_view name = detect(text);
      const Format& format = find_format(name.empty() || name == "chat" ? "none" : name);
      inner_ = format.make();
      spans.set_language(format.name);
    }
    inner_->label(text, is_end, spans);
  }

 private:
  std::unique_ptr<Labeller> inner_;
};

}  // namespace

std::unique_ptr<Labeller> make_detected() {
  return std::make_unique<Detected>();
}

}  // namespace winnow::roles
