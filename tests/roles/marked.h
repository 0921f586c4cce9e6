// Labels as a text that can be read: each span between brackets behind its role's letter.
#pragma once

#include <string>
#include <string_view>

#include "roles/stream.h"

namespace winnow::roles {

// 'K'EY, 'V'ALUE, 'D'ELIM, 'H'EADER, 'P'ROSE, '_' for white space.
inline char letter(Role role) {
  return role == Role::kSpace ? '_' : kRoleNames.name(role)[0];
}

// `K{"a"}D{:}V{1}`; white space stands as it is, without a mark.
inline std::string marked(std::string_view text, std::string_view format) {
  std::string all;
  for (const Span& span : label_text(text, find_format(format))) {
    const std::string part(text.substr(span.begin, span.end - span.begin));
    all += span.label.role == Role::kSpace ? part : letter(span.label.role) + ("⟨" + part) + "⟩";
  }
  return all;
}

// One letter for each byte.
inline std::string letters(std::string_view text, std::string_view format) {
  std::string all;
  for (const Span& span : label_text(text, find_format(format))) {
    all.append(span.end - span.begin, letter(span.label.role));
  }
  return all;
}

// The depth of each byte, as a digit.
inline std::string depths(std::string_view text, std::string_view format) {
  std::string all;
  for (const Span& span : label_text(text, find_format(format))) {
    all.append(span.end - span.begin, static_cast<char>('0' + span.label.depth));
  }
  return all;
}

}  // namespace winnow::roles
