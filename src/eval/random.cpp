// MT19937 by Matsumoto and Nishimura (ACM TOMACS 8(1), 1998), seeded by their init_by_array as CPython does it.
#include "eval/random.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <numeric>
#include <unordered_set>

#include "base/error.h"

namespace winnow::eval {

PythonRandom::PythonRandom(uint64_t seed) {
  const std::array<uint32_t, 2> key = {static_cast<uint32_t>(seed),
                                       static_cast<uint32_t>(seed >> 32)};
  const size_t n_key = key[1] == 0 ? 1 : 2;

  state_[0] = 19650218U;
  for (size_t i = 1; i < kStateSize; ++i) {
    const uint32_t last = state_[i - 1];
    state_[i] = 1812433253U * (last ^ (last >> 30)) + static_cast<uint32_t>(i);
  }
  size_t i = 1;
  const auto mix = [&](uint32_t factor, uint32_t addend) {
    const uint32_t last = state_[i - 1];
    state_[i] = (state_[i] ^ ((last ^ (last >> 30)) * factor)) + addend;
    if (++i == kStateSize) {
      state_[0] = state_[kStateSize - 1];
      i = 1;
    }
  };
  for (size_t step = 0; step < kStateSize; ++step) {
    const size_t j = step % n_key;
    mix(1664525U, key[j] + static_cast<uint32_t>(j));
  }
  for (size_t step = 1; step < kStateSize; ++step) {
    mix(1566083941U, 0U - static_cast<uint32_t>(i));
  }
  state_[0] = 0x80000000U;
}

void PythonRandom::refill() {
  for (size_t i = 0; i < kStateSize; ++i) {
    const uint32_t joined =
        (state_[i] & 0x80000000U) | (state_[(i + 1) % kStateSize] & 0x7fffffffU);
    state_[i] =
        state_[(i + 397) % kStateSize] ^ (joined >> 1) ^ ((joined & 1U) != 0 ? 0x9908b0dfU : 0U);
  }
  used_ = 0;
}

uint32_t PythonRandom::next() {
  if (used_ == kStateSize) {
    refill();
  }
  uint32_t x = state_[used_++];
  x ^= x >> 11;
  x ^= (x << 7) & 0x9d2c5680U;
  x ^= (x << 15) & 0xefc60000U;
  return x ^ (x >> 18);
}

double PythonRandom::random() {
  const uint32_t high = next() >> 5;
  const uint32_t low = next() >> 6;
  return (high * 67108864.0 + low) * (1.0 / 9007199254740992.0);
}

uint64_t PythonRandom::bits(int n_bits) {
  WINNOW_CHECK(n_bits >= 0 && n_bits <= 64);
  if (n_bits == 0) {
    return 0;
  }
  if (n_bits <= 32) {
    return next() >> (32 - n_bits);
  }
  const uint64_t low = next();
  return low | (static_cast<uint64_t>(next() >> (64 - n_bits)) << 32);
}

int64_t PythonRandom::below(int64_t n) {
  WINNOW_CHECK(n > 0);
  const int n_bits = std::bit_width(static_cast<uint64_t>(n));
  while (true) {
    const uint64_t drawn = bits(n_bits);
    if (drawn < static_cast<uint64_t>(n)) {
      return static_cast<int64_t>(drawn);
    }
  }
}

int64_t PythonRandom::between(int64_t low, int64_t high) {
  return low + below(high - low + 1);
}

std::vector<int64_t> PythonRandom::sample_indices(int64_t n, int64_t k) {
  WINNOW_CHECK(k >= 0 && k <= n);
  // CPython draws from a list when that is smaller than the set of numbers drawn, which is another sequence.
  int64_t set_size = 21;
  if (k > 5) {
    int64_t power = 1;
    while (power < 3 * k) {
      power *= 4;
    }
    set_size += power;
  }
  std::vector<int64_t> drawn;
  drawn.reserve(static_cast<size_t>(k));
  if (n <= set_size) {
    std::vector<int64_t> pool(static_cast<size_t>(n));
    std::iota(pool.begin(), pool.end(), 0);
    for (int64_t i = 0; i < k; ++i) {
      int64_t& place = pool[static_cast<size_t>(below(n - i))];
      drawn.push_back(place);
      place = pool[static_cast<size_t>(n - i - 1)];
    }
    return drawn;
  }
  std::unordered_set<int64_t> seen;
  while (std::ssize(drawn) < k) {
    const int64_t index = below(n);
    if (seen.insert(index).second) {
      drawn.push_back(index);
    }
  }
  return drawn;
}

std::string PythonRandom::uuid() {
  uint64_t low = bits(64);
  uint64_t high = bits(64);
  low = (low & ~(0xc000ULL << 48)) | (0x8000ULL << 48);  // RFC 4122's variant
  high = (high & ~0xf000ULL) | 0x4000ULL;                // version 4
  char text[37];
  std::snprintf(text, sizeof text, "%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32),
                static_cast<unsigned>(high >> 16 & 0xffff), static_cast<unsigned>(high & 0xffff),
                static_cast<unsigned>(low >> 48),
                static_cast<unsigned long long>(low & 0xffffffffffffULL));
  return text;
}

}  // namespace winnow::eval
