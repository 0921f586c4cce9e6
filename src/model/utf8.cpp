#include "model/utf8.h"

#include <algorithm>
#include <cstdint>

namespace winnow::model {
namespace {

// How many bytes the character at the start of `text` has; 0 when it is none.
size_t character_length(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return 1;
  }
  const size_t length = first >= 0xf0 ? 4 : (first >= 0xe0 ? 3 : 2);
  if (first < 0xc2 || first > 0xf4 || length > text.size()) {
    return 0;
  }
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) {
      return 0;
    }
  }
  const unsigned char second = byte(1);
  const bool is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
  const bool is_outside = (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
  return is_overlong || is_outside ? 0 : length;
}

uint32_t code_point(std::string_view character) {
  const auto byte = [character](size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) {
    return byte(0);
  }
  uint32_t value = byte(0) & (0xffU >> (character.size() + 1));
  for (size_t i = 1; i < character.size(); ++i) {
    value = value << 6 | (byte(i) & 0x3fU);
  }
  return value;
}

// Unicode's White_Space.
bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x20 || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

}  // namespace

std::optional<size_t> first_invalid_utf8(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const size_t length = character_length(text.substr(offset));
    if (length == 0) {
      return offset;
    }
    offset += length;
  }
  return std::nullopt;
}

size_t longest_word(std::string_view text) {
  size_t longest = 0;
  size_t previous = 0;  // length of the run of (no) spaces before the current one
  size_t current = 0;
  bool was_space = false;
  for (size_t offset = 0; offset < text.size();) {
    const size_t length = std::max<size_t>(character_length(text.substr(offset)), 1);
    const bool is_now_space = is_space(code_point(text.substr(offset, length)));
    if (is_now_space != was_space) {
      previous = current;
      current = 0;
      was_space = is_now_space;
    }
    ++current;
    longest = std::max(longest, previous + current);
    offset += length;
  }
  return longest + 1;  // one space may come before a word that spaces follow
}

}  // namespace winnow::model
