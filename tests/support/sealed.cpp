#include "support/sealed.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstdint>
#include <cstring>

namespace winnow::test {

std::string sealed(std::string bytes) {
  const uint64_t n_bytes = bytes.size();
  std::memcpy(bytes.data() + 16, &n_bytes, sizeof(n_bytes));
  const size_t n_hashed = bytes.size() - sizeof(uint64_t);
  const uint64_t checksum = XXH3_64bits(bytes.data(), n_hashed);
  std::memcpy(bytes.data() + n_hashed, &checksum, sizeof(checksum));
  return bytes;
}

}  // namespace winnow::test
