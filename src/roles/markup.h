// What a "<" of XML or HTML begins.
#pragma once

#include <cstddef>
#include <string_view>

#include "roles/bytes.h"

namespace winnow::roles {

enum class Markup { kComment, kCdata, kInstruction, kDeclaration, kTag, kEndTag, kText };

struct MarkupStart {
  Markup kind;
  size_t n_mark;  // bytes of the mark itself: "<!--", "</"
};

// As many bytes as tell what it is.
inline constexpr size_t kMarkupSniffed = 9;

constexpr bool begins_name(char c) {
  return is_letter(c) || c == '_' || c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

constexpr bool is_in_name(char c) {
  return !is_space(c) && c != '>' && c != '/' && c != '=' && c != '"' && c != '\'' && c != '<';
}

// `text` begins with "<" and has kMarkupSniffed bytes, unless it ends before.
constexpr MarkupStart markup_at(std::string_view text) {
  constexpr std::string_view kComment = "<!--";
  constexpr std::string_view kCdata = "<![CDATA[";
  static_assert(kCdata.size() == kMarkupSniffed);
  const char next = text.size() > 1 ? text[1] : '\0';
  const char third = text.size() > 2 ? text[2] : '\0';
  if (text.starts_with(kComment)) {
    return {Markup::kComment, kComment.size()};
  }
  if (text.starts_with(kCdata)) {
    return {Markup::kCdata, kCdata.size()};
  }
  if (next == '?') {
    return {Markup::kInstruction, 2};
  }
  if (next == '!' && is_letter(third)) {
    return {Markup::kDeclaration, 2};
  }
  if (next == '/' && begins_name(third)) {
    return {Markup::kEndTag, 2};
  }
  return {begins_name(next) ? Markup::kTag : Markup::kText, 1};
}

}  // namespace winnow::roles
