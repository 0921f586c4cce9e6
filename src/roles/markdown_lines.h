// What a line of Markdown, or of a chat, is: fences, rules, headings, rows of tables, marks of chat templates.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "roles/spans.h"

namespace winnow::roles {

struct Fence {
  char mark;  // of three or more
  size_t n_marks;
  std::string_view language;
};

// The fence that a line is, if it is one.
std::optional<Fence> fence_of(std::string_view line);

// The format of a fence's language; empty where it has none.
std::string_view format_of_language(std::string_view language);

// A table's line between its header and its cells: "|---|:-:|".
bool is_rule_row(std::string_view line);

// `n_least` or more of one of these marks, and nothing else: "---".
bool is_rule(std::string_view line, std::string_view marks, size_t n_least);

// 1 to 6 for "# …" to "###### …", otherwise 0.
int heading_level(std::string_view line);

// The length of a chat template's mark that `text` begins with: "<|im_start|>user", "[INST]", "<tool_call>"; 0 for none.
size_t mark_length(std::string_view text);

// Labels a line of cells between bars; a bar behind a backslash belongs to its cell.
void label_row(std::string_view line, Role of_cells, int depth, Spans& spans);

}  // namespace winnow::roles
