#include "eval/numpy_random.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>
#include <span>

#include "base/error.h"

namespace winnow::eval {
namespace {

// SeedSequence(seed).generate_state(8, uint32): M. E. O'Neill's seed_seq_fe with a pool of four words, whose constants
// these are.
std::array<uint32_t, 8> seed_words(uint64_t seed) {
  uint32_t multiplier = 0x43b0d7e5U;
  const auto hash = [&multiplier](uint32_t value) {
    value ^= multiplier;
    multiplier *= 0x931e8875U;
    value *= multiplier;
    return value ^ (value >> 16);
  };
  const auto mix = [](uint32_t x, uint32_t y) {
    const uint32_t value = 0xca01f9ddU * x - 0x4973f715U * y;
    return value ^ (value >> 16);
  };
  std::array<uint32_t, 4> pool = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (uint32_t& word : pool) {
    word = hash(word);
  }
  for (size_t from = 0; from < pool.size(); ++from) {
    for (size_t to = 0; to < pool.size(); ++to) {
      if (from != to) {
        pool[to] = mix(pool[to], hash(pool[from]));
      }
    }
  }
  std::array<uint32_t, 8> words{};
  multiplier = 0x8b51f9ddU;
  for (size_t i = 0; i < words.size(); ++i) {
    uint32_t value = pool[i % pool.size()] ^ multiplier;
    multiplier *= 0x58f38dedU;
    value *= multiplier;
    words[i] = value ^ (value >> 16);
  }
  return words;
}

// The normal density in 256 layers of the same area, the lowest with the tail beyond kTail: Marsaglia and Tsang, J. Stat.
// Software 5 (2000).
constexpr long double kTail = 3.6541528853610087963519472518L;

struct Ziggurat {
  std::array<uint64_t, 256> inside{};  // draws of 52 bits below lie under the curve
  std::array<double, 256> width{};     // of a layer, over 2^52
  std::array<double, 256> density{};   // at its right end
};

Ziggurat make_ziggurat() {
  const auto density = [](long double x) { return std::exp(-0.5L * x * x); };
  const long double scale = 0x1p52L;
  const long double area =
      kTail * density(kTail) + std::sqrt(std::numbers::pi_v<long double> / 2) *
                                   std::erfc(kTail / std::numbers::sqrt2_v<long double>);
  Ziggurat table;
  const long double base = area / density(kTail);
  table.inside[0] = static_cast<uint64_t>(kTail / base * scale);
  table.width[0] = static_cast<double>(base / scale);
  table.density[0] = 1;
  long double right = kTail;
  for (size_t i = 255; i > 0; --i) {
    table.width[i] = static_cast<double>(right / scale);
    table.density[i] = static_cast<double>(density(right));
    const long double height = area / right + density(right);
    const long double next = i > 1 ? std::sqrt(-2 * std::log(height)) : 0;
    table.inside[i] = static_cast<uint64_t>(next / right * scale);
    right = next;
  }
  return table;
}

}  // namespace

NumpyRandom::NumpyRandom(uint64_t seed) {
  const std::array<uint32_t, 8> words = seed_words(seed);
  const auto wide = [&words](size_t first) {  // two words of 64 bits, the higher first
    const auto word = [&](size_t i) {
      return static_cast<uint64_t>(words[i + 1]) << 32 | words[i];
    };
    return static_cast<State>(word(first)) << 64 | word(first + 2);
  };
  increment_ = wide(4) << 1 | 1;
  next();
  state_ += wide(0);
  next();
}

uint64_t NumpyRandom::next() {
  const State multiplier =
      static_cast<State>(2549297995355413924ULL) << 64 | 4865540595714422341ULL;
  state_ = state_ * multiplier + increment_;
  const auto high = static_cast<uint64_t>(state_ >> 64);
  return std::rotr(high ^ static_cast<uint64_t>(state_), static_cast<int>(high >> 58));
}

uint32_t NumpyRandom::next_half() {
  if (has_half_) {
    has_half_ = false;
    return half_;
  }
  const uint64_t word = next();
  has_half_ = true;
  half_ = static_cast<uint32_t>(word >> 32);
  return static_cast<uint32_t>(word);
}

// Lemire, ACM TOMACS 29 (2019).
uint32_t NumpyRandom::below_or_at(uint32_t most) {
  if (most == 0) {
    return 0;
  }
  const uint64_t n = static_cast<uint64_t>(most) + 1;
  uint64_t product = next_half() * n;
  if (static_cast<uint32_t>(product) < n) {
    const auto least = static_cast<uint32_t>((UINT32_MAX - most) % n);
    while (static_cast<uint32_t>(product) < least) {
      product = next_half() * n;
    }
  }
  return static_cast<uint32_t>(product >> 32);
}

double NumpyRandom::random() {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

double NumpyRandom::standard_normal() {
  static const Ziggurat table = make_ziggurat();
  constexpr auto tail = static_cast<double>(kTail);
  for (;;) {
    const uint64_t word = next();
    const size_t layer = word & 0xFFU;
    const double sign = (word >> 8 & 1U) != 0 ? -1 : 1;
    const uint64_t draw = word >> 9 & 0xFFFFFFFFFFFFFU;
    const double x = static_cast<double>(draw) * table.width[layer];
    if (draw < table.inside[layer]) {
      return sign * x;
    }
    if (layer == 0) {
      for (;;) {
        const double beyond = -1 / tail * std::log1p(-random());
        const double height = -std::log1p(-random());
        if (height + height > beyond * beyond) {
          return (draw >> 8 & 1U) != 0 ? -(tail + beyond) : tail + beyond;
        }
      }
    }
    const double step = table.density[layer - 1] - table.density[layer];
    if (step * random() + table.density[layer] < std::exp(-0.5 * x * x)) {
      return sign * x;
    }
  }
}

std::vector<int64_t> NumpyRandom::choice(int64_t n, int64_t k) {
  WINNOW_CHECK(0 <= k && k <= n && n <= 10000);
  std::vector<int64_t> chosen;
  std::vector<bool> is_chosen(static_cast<size_t>(n), false);
  for (int64_t most = n - k; most < n; ++most) {
    const auto drawn = static_cast<int64_t>(below_or_at(static_cast<uint32_t>(most)));
    chosen.push_back(is_chosen[static_cast<size_t>(drawn)] ? most : drawn);
    is_chosen[static_cast<size_t>(chosen.back())] = true;
  }
  for (size_t i = chosen.size(); i > 1; --i) {
    std::swap(chosen[i - 1], chosen[below_or_at(static_cast<uint32_t>(i - 1))]);
  }
  return chosen;
}

}  // namespace winnow::eval
