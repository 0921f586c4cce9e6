// A hash that tells contents apart in results.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace winnow {

// 16 hexadecimal digits: XXH3, 64 bits.
std::string content_hash(std::span<const std::byte> bytes);

}  // namespace winnow
