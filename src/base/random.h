// Random numbers that are the same on every machine: a hash, so that a draw needs no state and no order.
#pragma once

#include <cstdint>

namespace winnow {

// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): every output bit depends on every input bit.
uint64_t splitmix64(uint64_t x);

// The hash of what `hash` is the hash of, and of a number behind it.
uint64_t hash_with(uint64_t hash, int number);

}  // namespace winnow
