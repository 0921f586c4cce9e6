// What labellers ask about bytes and words.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace winnow::roles {

// Looked up: most bytes are asked for it.
inline constexpr auto kIsSpace = [] {
  std::array<bool, 256> table{};
  for (const char c : {' ', '\n', '\t', '\r', '\f', '\v'}) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}();

constexpr bool is_space(char c) {
  return kIsSpace[static_cast<unsigned char>(c)];
}

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

constexpr char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

constexpr bool is_letter(char c) {
  return lower(c) >= 'a' && lower(c) <= 'z';
}

constexpr bool is_word_byte(char c) {
  return is_letter(c) || is_digit(c) || c == '_';
}

// How many bytes at the beginning of `text` satisfy `holds`.
template <typename Predicate>
constexpr size_t count_while(std::string_view text, Predicate holds) {
  size_t n = 0;
  while (n < text.size() && holds(text[n])) {
    ++n;
  }
  return n;
}

constexpr size_t n_spaces(std::string_view text) {
  return count_while(text, is_space);
}

constexpr bool is_blank(std::string_view text) {
  return n_spaces(text) == text.size();
}

// `text` without the white space at its end.
constexpr std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && is_space(text.back())) {
    text.remove_suffix(1);
  }
  return text;
}

constexpr bool equals_in_any_case(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (lower(a[i]) != lower(b[i])) {
      return false;
    }
  }
  return true;
}

// The mark that some programs put before UTF-8 text.
inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

}  // namespace winnow::roles
