#include "support/eviction_grid.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <random>

namespace winnow::test {
namespace {

using cache::RowType;

// Exponents that mean 1/64 … 4 times 1 … 2, the bits of a mantissa, and numbers of a kind of their own.
struct Bits {
  int n_bits, mantissa, first_exponent;
  std::array<uint32_t, 9> special;  // NaN, -NaN, ±infinity, ±0, smallest, -smallest, largest
};
constexpr Bits kF32Bits{
    32,
    23,
    121,
    {0x7fc00000, 0xffc00000, 0x7f800000, 0xff800000, 0, 0x80000000, 1, 0x80000001, 0x7f7fffff}};
constexpr Bits kF16Bits{16, 10, 9, {0x7e00, 0xfe00, 0x7c00, 0xfc00, 0, 0x8000, 1, 0x8001, 0x7bff}};
constexpr Bits kBf16Bits{
    16, 7, 121, {0x7fc0, 0xffc0, 0x7f80, 0xff80, 0, 0x8000, 1, 0x8001, 0x7f7f}};

const Bits& bits_of(RowType type) {
  return type == RowType::kF32 ? kF32Bits : type == RowType::kF16 ? kF16Bits : kBf16Bits;
}

uint32_t draw_element(std::mt19937& random, const Bits& bits) {
  const uint32_t drawn = static_cast<uint32_t>(random());
  constexpr uint32_t kExponents = 9;
  const uint32_t exponent = static_cast<uint32_t>(bits.first_exponent) + (drawn >> 24) % kExponents;
  const uint32_t mantissa = drawn & ((1U << bits.mantissa) - 1);
  return (drawn >> 23 & 1) << (bits.n_bits - 1) | exponent << bits.mantissa | mantissa;
}

void put(std::vector<std::byte>& elements, size_t at, const Bits& bits, uint32_t element) {
  const size_t bytes = static_cast<size_t>(bits.n_bits) / 8;
  std::memcpy(elements.data() + at * bytes, &element, bytes);  // little-endian machines
}

std::vector<std::byte> draw_elements(std::mt19937& random, RowType type, size_t n) {
  std::vector<std::byte> elements(n * cache::element_bytes(type));
  for (size_t i = 0; i < n; ++i) {
    put(elements, i, bits_of(type), draw_element(random, bits_of(type)));
  }
  return elements;
}

class Hash {
 public:
  template <class T>
  void add(const T& value) {
    std::array<unsigned char, sizeof(T)> bytes{};
    std::memcpy(bytes.data(), &value, sizeof(T));
    for (const unsigned char byte : bytes) {
      hash_ = (hash_ ^ byte) * 0x100000001b3U;
    }
  }
  void add_score(float score) {
    add(std::isnan(score) ? 0x7fc00000U : std::bit_cast<uint32_t>(score));
  }
  template <class Values>
  void add_all(const Values& values) {
    for (const auto& value : values) {
      add(value);
    }
  }
  uint64_t get() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325U;
};

constexpr EvictionHashes kGolden[] = {
#include "support/eviction_golden.inc"
};

}  // namespace

std::vector<std::byte> random_elements(uint32_t seed, RowType type, size_t n) {
  std::mt19937 random(seed);
  return draw_elements(random, type, n);
}

std::vector<EvictionCase> eviction_grid() {
  constexpr int kLengths[] = {1,  2,   7,   31,  32,  33,   63,   64,   65,
                              96, 127, 128, 129, 130, 1000, 4095, 4096, 4097};
  std::vector<EvictionCase> grid;
  std::mt19937 random(7);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto add = [&](RowType type, int head_dim, int n_rows, Content content) {
    EvictionCase c{.type = type, .head_dim = head_dim, .n_rows = n_rows, .content = content};
    c.n_keep = 1 + below(n_rows);
    c.n_first = below(std::min(c.n_keep, 5) + 1);
    c.n_last = below(c.n_keep - c.n_first + 1) / 2;
    c.seed = static_cast<uint32_t>(grid.size());
    grid.push_back(c);
  };
  size_t next = 0;
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    for (const int head_dim : {64, 80, 96, 128, 256}) {
      for (const Content content :
           {Content::kRandom, Content::kTied, Content::kEqual, Content::kSpecial}) {
        for (int i = 0; i < 3; ++i) {
          add(type, head_dim, kLengths[next++ * 5 % std::size(kLengths)], content);
        }
      }
    }
  }
  for (const Content content : {Content::kRandom, Content::kTied, Content::kSpecial}) {
    add(RowType::kF16, 128, 32768, content);
    add(RowType::kBf16, 64, 131072, content);
  }
  return grid;
}

std::string name_of(const EvictionCase& c) {
  constexpr const char* kContents[] = {"random", "tied", "equal", "special"};
  return std::string(row_type_name(c.type)) + " " + std::to_string(c.head_dim) + " x " +
         std::to_string(c.n_rows) + ", " + kContents[static_cast<int>(c.content)] + ", keep " +
         std::to_string(c.n_keep) + " with first " + std::to_string(c.n_first) + " and last " +
         std::to_string(c.n_last);
}

EvictionInput input_of(const EvictionCase& c) {
  std::mt19937 random(c.seed);
  const auto dim = static_cast<size_t>(c.head_dim);
  const auto n = static_cast<size_t>(c.n_rows);
  const size_t row_bytes = dim * cache::element_bytes(c.type);
  EvictionInput input;
  input.keys = draw_elements(random, c.type, n * dim);
  input.values = draw_elements(random, c.type, n * dim);
  for (size_t row = 0; row < n; ++row) {
    if (c.content == Content::kTied || c.content == Content::kEqual) {
      const size_t original = c.content == Content::kTied ? random() % std::min<size_t>(5, n) : 0;
      std::memmove(input.keys.data() + row * row_bytes, input.keys.data() + original * row_bytes,
                   row_bytes);
    } else if (c.content == Content::kSpecial && random() % 4 == 0) {
      const Bits& bits = bits_of(c.type);
      put(input.keys, row * dim + random() % dim, bits,
          bits.special[random() % bits.special.size()]);
    }
  }
  int32_t pos = 0;
  for (size_t row = 0; row < n; ++row) {
    pos += 1 + static_cast<int32_t>(random() % 3);
    input.positions.push_back(pos);
  }
  for (size_t i = 0; i < dim; ++i) {
    input.filter.push_back(std::bit_cast<float>(draw_element(random, kF32Bits)));
  }
  return input;
}

EvictionHashes hashes_of(const Evicted& evicted) {
  Hash norms;
  Hash dots;
  Hash slots;
  Hash rows;
  for (const float norm : evicted.norms) {
    norms.add_score(norm);
  }
  for (const float dot : evicted.dots) {
    dots.add_score(dot);
  }
  slots.add_all(evicted.slots);
  slots.add(evicted.n_nan);
  rows.add_all(evicted.keys);
  rows.add_all(evicted.values);
  rows.add_all(evicted.positions);
  return {norms.get(), dots.get(), slots.get(), rows.get()};
}

std::span<const EvictionHashes> golden_hashes() {
  return kGolden;
}

std::string golden_line(const EvictionHashes& hashes) {
  std::array<char, 128> line{};
  std::snprintf(
      line.data(), line.size(), "{0x%016llx, 0x%016llx, 0x%016llx, 0x%016llx},",
      static_cast<unsigned long long>(hashes.norms), static_cast<unsigned long long>(hashes.dots),
      static_cast<unsigned long long>(hashes.slots), static_cast<unsigned long long>(hashes.rows));
  return line.data();
}

}  // namespace winnow::test
