// The list of formats that have a labeller.
#pragma once

#include <algorithm>
#include <memory>
#include <string_view>

#include "roles/labeller.h"

namespace winnow::roles {

struct Format {
  std::string_view name;
  std::unique_ptr<Labeller> (*make)();
  std::string_view help;
};

std::unique_ptr<Labeller> make_auto();
std::unique_ptr<Labeller> make_chat();
std::unique_ptr<Labeller> make_csv();
std::unique_ptr<Labeller> make_html();
std::unique_ptr<Labeller> make_ini();
std::unique_ptr<Labeller> make_json();
std::unique_ptr<Labeller> make_json_lines();
std::unique_ptr<Labeller> make_log();
std::unique_ptr<Labeller> make_markdown();
std::unique_ptr<Labeller> make_none();
std::unique_ptr<Labeller> make_paper();
std::unique_ptr<Labeller> make_toml();
std::unique_ptr<Labeller> make_tsv();
std::unique_ptr<Labeller> make_xml();
std::unique_ptr<Labeller> make_yaml();

inline constexpr Format kFormats[] = {
    {"auto", make_auto, "told from the text, which may change its format"},
    {"chat", make_chat, "transcripts and tool calls; what was said is text of any format"},
    {"csv", make_csv, "rows of cells between commas, semicolons or bars, the first one a header"},
    {"html", make_html, "HTML"},
    {"ini", make_ini, "INI and properties files"},
    {"json", make_json, "JSON, with the liberties of JSON5"},
    {"jsonl", make_json_lines, "JSON lines: each line is a document"},
    {"log", make_log, "lines with time stamps and levels"},
    {"markdown", make_markdown, "Markdown, with tables, fences and front matter"},
    {"none", make_none, "all of it is prose"},
    {"paper", make_paper,
     "the rules of the published study, to compare with it; holds the whole text"},
    {"toml", make_toml, "TOML"},
    {"tsv", make_tsv, "rows of cells between tabs"},
    {"xml", make_xml, "XML"},
    {"yaml", make_yaml, "YAML"},
};
static_assert(std::ranges::is_sorted(kFormats, {}, &Format::name), "kFormats is sorted by name");

// Throws invalid_argument with the nearest name and the list.
const Format& find_format(std::string_view name);

}  // namespace winnow::roles
