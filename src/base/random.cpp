#include "base/random.h"

namespace winnow {

uint64_t splitmix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

uint64_t hash_with(uint64_t hash, int number) {
  return splitmix64(hash ^ static_cast<uint32_t>(number));
}

}  // namespace winnow
