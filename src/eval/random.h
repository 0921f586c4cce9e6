// CPython's random.Random, bit for bit: evaluation prompts are made with it, so that anyone with Python can make the
// same ones. Matches random.py of Python 3.11 and 3.12 for a generator that is seeded with an int.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace winnow::eval {

class PythonRandom {
 public:
  // random.Random(seed)
  explicit PythonRandom(uint64_t seed);

  // random(): in [0, 1), 53 bits.
  double random();
  // getrandbits(n_bits), for 0 to 64 bits.
  uint64_t bits(int n_bits);
  // randrange(n): in [0, n); n is positive.
  int64_t below(int64_t n);
  // randint(low, high): both ends are possible; low <= high, and high - low + 1 is an int64_t.
  int64_t between(int64_t low, int64_t high);

  // choice(items); items are not empty.
  template <typename Item>
  const Item& choice(const std::vector<Item>& items) {
    return items[static_cast<size_t>(below(std::ssize(items)))];
  }

  // choices(items, k=n): with replacement.
  template <typename Item>
  std::vector<Item> choices(const std::vector<Item>& items, int n) {
    std::vector<Item> chosen;
    chosen.reserve(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) {
      chosen.push_back(items[static_cast<size_t>(random() * static_cast<double>(items.size()))]);
    }
    return chosen;
  }

  // sample(range(n), k): k different numbers below n, in the order drawn; k <= n.
  std::vector<int64_t> sample_indices(int64_t n, int64_t k);

  // sample(items, k): without replacement, in the order drawn.
  template <typename Item>
  std::vector<Item> sample(const std::vector<Item>& items, int k) {
    std::vector<Item> chosen;
    for (const int64_t i : sample_indices(std::ssize(items), k)) {
      chosen.push_back(items[static_cast<size_t>(i)]);
    }
    return chosen;
  }

  // shuffle(items)
  template <typename Item>
  void shuffle(std::vector<Item>& items) {
    for (size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<size_t>(below(static_cast<int64_t>(i)))]);
    }
  }

  // str(uuid.UUID(int=getrandbits(128), version=4))
  std::string uuid();

 private:
  static constexpr size_t kStateSize = 624;

  uint32_t next();  // 32 bits of MT19937
  void refill();

  std::array<uint32_t, kStateSize> state_;
  size_t used_ = kStateSize;
};

}  // namespace winnow::eval
