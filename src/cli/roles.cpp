// winnow roles: what each part of a structured text is there for, as colours, as spans or tokens, and as shares of these.

#include <fcntl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/output.h"
#include "cli/verbs.h"
#include "engine/token_roles.h"
#include "model/model.h"
#include "roles/stream.h"

namespace winnow::cli {
namespace {

using roles::Role;
using roles::Span;

struct RolesFlags {
  std::string file;
  std::string format = "auto";
  bool is_paper = false;
  bool is_json = false;
  bool is_html = false;
  bool is_colored = false;
  std::string model;
  bool is_by_token = false;
  bool is_flipped = false;
};

// Of a terminal, and of HTML.
struct Color {
  Role role;
  const char* escape;
  const char* css;
};

constexpr std::array<Color, roles::kRoles> kColors{{{Role::kKey, "\033[36m", "#0b7285"},
                                                    {Role::kValue, "\033[32m", "#2b8a3e"},
                                                    {Role::kDelim, "\033[33m", "#b08900"},
                                                    {Role::kHeader, "\033[1;35m", "#9c36b5"},
                                                    {Role::kProse, "\033[0m", "#212529"},
                                                    {Role::kSpace, "\033[0m", "#adb5bd"}}};

const Color& color_of(Role role) {
  return *std::ranges::find(kColors, role, &Color::role);
}

// Reads a file, or standard input, in pieces.
class Pieces {
 public:
  explicit Pieces(const std::string& path)
      : path_(path), fd_(path == "-" ? STDIN_FILENO : open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) {
      throw_errno(path, "open");
    }
  }
  ~Pieces() {
    if (fd_ != STDIN_FILENO) {
      close(fd_);
    }
  }
  Pieces(const Pieces&) = delete;
  Pieces& operator=(const Pieces&) = delete;

  // Empty at the end. Throws io.
  std::string_view next() {
    for (;;) {
      const ssize_t n = read(fd_, buffer_.data(), buffer_.size());
      if (n >= 0) {
        return {buffer_.data(), static_cast<size_t>(n)};
      }
      if (errno != EINTR) {
        throw_errno(path_, "read");
      }
    }
  }

 private:
  std::string path_;
  int fd_;
  std::vector<char> buffer_ = std::vector<char>(size_t{1} << 16);  // its spans stay in the cache
};

// Of bytes, or of tokens.
struct Shares {
  explicit Shares(const char* counted) : unit(counted) {}

  const char* unit;
  std::map<Role, uint64_t> n_of_role;
  std::map<std::string_view, uint64_t> n_of_language;
  uint64_t n_all = 0;

  void add(const roles::Label& label, uint64_t n) {
    n_of_role[label.role] += n;
    n_of_language[label.language()] += n;
    n_all += n;
  }
  double share(uint64_t n) const {
    return n_all == 0 ? 0 : static_cast<double>(n) / static_cast<double>(n_all);
  }
};

// The text of a span, without what a terminal would obey.
std::string printable(std::string_view text, bool is_html) {
  std::string safe;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    if (c == '\xc2' && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
      safe += '?';
      ++i;
      continue;
    }
    const bool is_control =
        (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f;
    if (is_control) {
      safe += c == '\r' ? "" : "?";
    } else if (is_html && (c == '<' || c == '>' || c == '&')) {
      safe += c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;";
    } else {
      safe += c;
    }
  }
  return safe;
}

// `first` is put before what all spans have.
std::string span_json(const Span& span, const std::string& first = "") {
  return "{" + first + "\"start\": " + std::to_string(span.begin) +
         ", \"end\": " + std::to_string(span.end) + ", \"role\": \"" +
         roles::kRoleNames.name(span.label.role) +
         "\", \"depth\": " + std::to_string(span.label.depth) +
         ", \"in_string\": " + (span.label.is_in_string ? "true" : "false") +
         ", \"block\": " + std::to_string(span.label.block) + ", \"language\": \"" +
         std::string(span.label.language()) + "\"}";
}

std::string shares_json(const Shares& shares) {
  // The tokens themselves are "tokens".
  const std::string count = std::string(shares.unit) == "tokens" ? "n_tokens" : shares.unit;
  std::string text = "\"" + count + "\": " + std::to_string(shares.n_all) + ",\n  \"roles\": {";
  const char* separator = "";
  for (const auto& entry : roles::kRoleNames.entries) {
    const auto found = shares.n_of_role.find(entry.value);
    const uint64_t n = found == shares.n_of_role.end() ? 0 : found->second;
    text += separator + ("\"" + std::string(entry.name)) + "\": {\"" + count +
            "\": " + std::to_string(n) + ", \"share\": " + rounded_text(shares.share(n), 6) + "}";
    separator = ", ";
  }
  text += "},\n  \"languages\": {";
  separator = "";
  for (const auto& [language, n] : shares.n_of_language) {
    text += separator + ("\"" + std::string(language)) + "\": " + std::to_string(n);
    separator = ", ";
  }
  return text + "}";
}

std::string shares_text(const Shares& shares) {
  std::string text;
  for (const auto& entry : roles::kRoleNames.entries) {
    const auto found = shares.n_of_role.find(entry.value);
    const uint64_t n = found == shares.n_of_role.end() ? 0 : found->second;
    std::array<char, 64> line{};
    std::snprintf(line.data(), line.size(), "%-6s %10llu %s %6.2f %%\n", entry.name,
                  static_cast<unsigned long long>(n), shares.unit, 100 * shares.share(n));
    text += line.data();
  }
  text += "formats:";
  for (const auto& [language, n] : shares.n_of_language) {
    text += " " + std::string(language) + " " + rounded_text(100 * shares.share(n), 1) + " %";
  }
  return text + "\n";
}

constexpr std::string_view kHtmlHead =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Roles</title><style>\n"
    "body{background:#fff;margin:2em}pre{white-space:pre-wrap;font:14px/1.4 monospace}\n";

std::string html_head() {
  std::string text(kHtmlHead);
  for (const Color& color : kColors) {
    text += "." + std::string(roles::kRoleNames.name(color.role)) + "{color:" + color.css + "}\n";
  }
  return text + "</style></head><body><pre>";
}

std::string html_span(const Span& span, std::string_view text) {
  const std::string role = roles::kRoleNames.name(span.label.role);
  return "<span class=\"" + role + "\" title=\"" + role + " depth " +
         std::to_string(span.label.depth) + " " + std::string(span.label.language()) + "\">" +
         printable(text, true) + "</span>";
}

std::string json_head(const roles::Format& format, const char* list) {
  return "{\n  \"format\": \"" + std::string(format.name) + "\",\n  \"" + list + "\": [";
}

std::string head(const RolesFlags& flags, const roles::Format& format, const char* list) {
  return flags.is_html ? html_head() : flags.is_json ? json_head(format, list) : "";
}

// A piece of the text in its colour.
std::string shown(const RolesFlags& flags, const Span& span, std::string_view text) {
  return flags.is_html ? html_span(span, text)
                       : color_of(span.label.role).escape + printable(text, false);
}

std::string tail(const RolesFlags& flags, const Shares& shares, bool is_shown) {
  if (flags.is_html) {
    return "</pre><hr><pre>" + shares_text(shares) + "</pre></body></html>\n";
  }
  if (flags.is_json) {
    return "\n  ],\n  " + shares_json(shares) + "\n}\n";
  }
  return (is_shown ? "\033[0m\n" : "") + shares_text(shares);
}

// The tokens of a text that a model makes of it, each a span with the label of its bytes.
struct TokenSpans {
  std::vector<model::Token> tokens;
  std::vector<Span> spans;
};

TokenSpans token_spans(const RolesFlags& flags, const roles::Format& format,
                       const std::string& text) {
  const model::Model model(flags.model, {});
  TokenSpans result{.tokens = model.vocabulary().tokenize(text, model::SpecialText::kPlain),
                    .spans = {}};
  const std::vector<model::ByteRange> ranges =
      model::byte_ranges(model.vocabulary(), text, result.tokens);
  const std::vector<roles::Label> labels = engine::token_labels(
      ranges, roles::label_text(text, format), engine::precedence_of(format, flags.is_flipped));
  for (size_t i = 0; i < ranges.size(); ++i) {
    result.spans.push_back({ranges[i].begin, ranges[i].end, labels[i]});
  }
  return result;
}

int show_tokens(const RolesFlags& flags, const roles::Format& format, bool is_shown) {
  const std::string text = read_text_file(flags.file);
  const TokenSpans found = token_spans(flags, format, text);
  Shares shares("tokens");
  std::string output = head(flags, format, "tokens");
  for (size_t i = 0; i < found.spans.size(); ++i) {
    const Span& span = found.spans[i];
    shares.add(span.label, 1);
    if (flags.is_json) {
      output += (i == 0 ? "\n    " : ",\n    ") +
                span_json(span, "\"id\": " + std::to_string(found.tokens[i]) + ", ");
    } else if (is_shown) {
      output += shown(flags, span, text.substr(span.begin, span.end - span.begin));
    }
  }
  write_output(output + tail(flags, shares, is_shown));
  return 0;
}

int show_spans(const RolesFlags& flags, const roles::Format& format, bool is_shown) {
  Pieces pieces(flags.file);
  roles::Stream stream(format);
  Shares shares("bytes");
  std::string text;  // that no span was shown for yet
  size_t n_shown = 0;
  const char* separator = "\n    ";
  std::string_view piece = pieces.next();  // nothing is printed of what cannot be read
  write_output(head(flags, format, "spans"));
  std::vector<Span> spans;
  const auto show = [&] {
    std::string output;
    stream.take(spans);
    for (const Span& span : spans) {
      shares.add(span.label, span.end - span.begin);
      if (flags.is_json) {
        output += separator + span_json(span);
        separator = ",\n    ";
      } else if (is_shown) {
        const std::string_view part =
            std::string_view(text).substr(span.begin - n_shown, span.end - span.begin);
        output += shown(flags, span, part);
      }
      if (is_shown && output.size() > (size_t{1} << 20)) {
        write_output(output);
        output.clear();
      }
    }
    write_output(output);
    if (is_shown) {
      text.erase(0, shares.n_all - n_shown);
      n_shown = shares.n_all;
    }
  };
  for (; !piece.empty(); piece = pieces.next()) {
    if (is_shown) {
      text += piece;
    }
    stream.feed(piece);
    show();
  }
  stream.finish();
  show();
  write_output(tail(flags, shares, is_shown));
  return 0;
}

int show_roles(const RolesFlags& flags) {
  const roles::Format& format = roles::find_format(flags.is_paper ? "paper" : flags.format);
  if (flags.is_by_token != !flags.model.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                flags.is_by_token ? "--tokens needs a model (-m) whose tokens they are"
                                  : "-m names the model whose tokens --tokens shows");
  }
  const bool is_shown =
      flags.is_html || (!flags.is_json && (flags.is_colored || isatty(STDOUT_FILENO) != 0));
  return flags.is_by_token ? show_tokens(flags, format, is_shown)
                           : show_spans(flags, format, is_shown);
}

std::string format_names() {
  std::string names;
  for (const roles::Format& format : roles::kFormats) {
    names += (names.empty() ? "" : "|") + std::string(format.name);
  }
  return names;
}

}  // namespace

Verb add_roles(CLI::App& app) {
  const auto flags = std::make_shared<RolesFlags>();
  app.add_option("file", flags->file, "the text; - is standard input")->required();
  CLI::Option* const format =
      app.add_option("--roles", flags->format, "the text's format: " + format_names())
          ->capture_default_str();
  app.add_flag("--roles-paper", flags->is_paper, "the rules of the published study: --roles paper")
      ->excludes(format);
  app.add_option("-m,--model", flags->model, "a GGUF file, for --tokens");
  CLI::Option* const tokens =
      app.add_flag("--tokens", flags->is_by_token, "label the tokens that the model makes of it");
  app.add_flag("--roles-flip", flags->is_flipped,
               "with --tokens: a token that has DELIM in it is DELIM, as in the study's ablation")
      ->needs(tokens);
  CLI::Option* const json =
      app.add_flag("--json", flags->is_json, "print spans or tokens, and shares, as JSON");
  app.add_flag("--html", flags->is_html, "print the text as a page in colours")->excludes(json);
  app.add_flag("--color", flags->is_colored,
               "print the text in colours where the output is no terminal too");
  return [flags] { return show_roles(*flags); };
}

}  // namespace winnow::cli
