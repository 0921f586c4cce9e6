#include "roles/markdown_lines.h"

#include <algorithm>
#include <array>

#include "roles/bytes.h"
#include "roles/detect.h"
#include "roles/lines.h"

namespace winnow::roles {

std::optional<Fence> fence_of(std::string_view line) {
  line = without_end(line);
  line.remove_prefix(n_spaces(line));
  if (!line.starts_with("```") && !line.starts_with("~~~")) {
    return std::nullopt;
  }
  const char mark = line[0];
  const size_t n = count_while(line, [mark](char c) { return c == mark; });
  line.remove_prefix(n);
  if (mark == '`' && line.find('`') != std::string_view::npos) {
    return std::nullopt;  // code in a line
  }
  line.remove_prefix(n_spaces(line));
  return Fence{mark, n, line.substr(0, count_while(line, [](char c) {
                                      return is_word_byte(c) || c == '-' || c == '+';
                                    }))};
}

std::string_view format_of_language(std::string_view language) {
  constexpr std::array<std::array<std::string_view, 2>, 16> kNames{{{"json", "json"},
                                                                    {"json5", "json"},
                                                                    {"jsonc", "json"},
                                                                    {"jsonl", "jsonl"},
                                                                    {"ndjson", "jsonl"},
                                                                    {"geojson", "json"},
                                                                    {"xml", "xml"},
                                                                    {"svg", "xml"},
                                                                    {"html", "html"},
                                                                    {"yaml", "yaml"},
                                                                    {"yml", "yaml"},
                                                                    {"toml", "toml"},
                                                                    {"ini", "ini"},
                                                                    {"csv", "csv"},
                                                                    {"tsv", "tsv"},
                                                                    {"log", "log"}}};
  for (const auto& [name, format] : kNames) {
    if (equals_in_any_case(name, language)) {
      return format;
    }
  }
  return {};
}

bool is_rule_row(std::string_view line) {
  line = without_end(line);
  return line.find('-') != std::string_view::npos && line.find('|') != std::string_view::npos &&
         line.find_first_not_of("|-: \t") == std::string_view::npos;
}

bool is_rule(std::string_view line, std::string_view marks, size_t n_least) {
  line = without_end(line);
  line.remove_prefix(n_spaces(line));
  const char mark = line.empty() ? '\0' : line[0];
  return marks.find(mark) != std::string_view::npos &&
         static_cast<size_t>(std::ranges::count(line, mark)) >= n_least &&
         std::ranges::all_of(line, [mark](char c) { return c == mark || is_space(c); });
}

int heading_level(std::string_view line) {
  const size_t n = count_while(line, [](char c) { return c == '#'; });
  return n >= 1 && n <= 6 && (n == line.size() || is_space(line[n])) ? static_cast<int>(n) : 0;
}

size_t mark_length(std::string_view text) {
  constexpr std::array<std::string_view, 14> kMarks{
      "[INST]",       "[/INST]",         "<<SYS>>",          "<</SYS>>",       "<tool_call>",
      "</tool_call>", "<tool_response>", "</tool_response>", "<tools>",        "</tools>",
      "<think>",      "</think>",        "<end_of_turn>",    "<start_of_turn>"};
  size_t n = 0;
  if (begins_with_mark(text)) {
    n = text.find("|>") + 2;
  } else if (!text.starts_with("<|")) {
    const auto* const mark =
        std::ranges::find_if(kMarks, [&](std::string_view each) { return text.starts_with(each); });
    n = mark == kMarks.end() ? 0 : mark->size();
  }
  const std::string_view name = text.substr(n, count_while(text.substr(n), is_letter));
  const bool is_name = n > 0 && is_blank(without_end(text).substr(n + name.size()));
  return n + (is_name ? name.size() : 0);
}

void label_row(std::string_view line, Role of_cells, int depth, Spans& spans) {
  LineLabels labels(line, spans);
  while (!labels.is_at_end()) {
    labels.add_space(depth);
    const std::string_view rest = labels.rest();
    size_t n = 0;
    while (n < rest.size() && rest[n] != '|') {
      n += rest[n] == '\\' && n + 1 < rest.size() ? 2 : 1;
    }
    labels.add_trimmed(n, of_cells, depth);
    labels.add(labels.next() == '|' ? 1 : 0, Role::kDelim, depth);
  }
}

}  // namespace winnow::roles
