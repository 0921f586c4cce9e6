// Texts and lists of token ids of any bytes: UTF-8 is told from the rest as by plain decoding, ids stay in their range.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/token_ids.h"
#include "model/utf8.h"

namespace {

// What a code point looks like in UTF-8; empty when it is no character.
std::string encoded(uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
    return {};
  }
  if (c < 0x80) {
    return {static_cast<char>(c)};
  }
  std::string tail;
  uint32_t most = 0x3f;  // that the first byte can hold, with the length's bits
  while (c > most) {
    tail.insert(tail.begin(), static_cast<char>(0x80 | (c & 0x3f)));
    c >>= 6;
    most >>= 1;
  }
  return static_cast<char>(~(2 * most + 1) | c) + tail;
}

std::optional<size_t> first_invalid(std::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    const auto first = static_cast<unsigned char>(text[offset]);
    const auto n_ones = static_cast<size_t>(std::countl_one(first));
    const size_t length = n_ones == 0 ? 1 : n_ones;
    uint32_t c = n_ones == 0 ? first : first & (0x7fU >> n_ones);
    for (size_t i = 1; i < length && offset + i < text.size(); ++i) {
      c = c << 6 | (static_cast<unsigned char>(text[offset + i]) & 0x3fU);
    }
    if (n_ones == 1 || n_ones > 4 || encoded(c) != text.substr(offset, length)) {
      return offset;
    }
    offset += length;
  }
  return std::nullopt;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::optional<size_t> invalid = winnow::model::first_invalid_utf8(text);
  if (invalid != first_invalid(text)) {
    std::abort();
  }
  if (!invalid && winnow::model::longest_word(text) > size + 1) {
    std::abort();
  }
  constexpr int kVocabulary = 49152;
  try {
    const auto ids = winnow::cli::parse_token_ids(std::string(text), kVocabulary);
    if (ids.empty() || *std::min_element(ids.begin(), ids.end()) < 0 ||
        *std::max_element(ids.begin(), ids.end()) >= kVocabulary) {
      std::abort();
    }
  } catch (const winnow::Error&) {
  }
  return 0;
}
