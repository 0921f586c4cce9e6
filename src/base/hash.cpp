#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <array>
#include <cinttypes>
#include <cstdio>

namespace winnow {

std::string content_hash(std::span<const std::byte> bytes) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016" PRIx64,
                static_cast<uint64_t>(XXH3_64bits(bytes.data(), bytes.size())));
  return text.data();
}

}  // namespace winnow
