#include "support/gguf_damage.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>

#include "gguf.h"

namespace winnow::test {
namespace {

constexpr size_t kAlignment = 32;

size_t aligned(size_t n) {
  return (n + kAlignment - 1) / kAlignment * kAlignment;
}

class Dissection {
 public:
  explicit Dissection(std::string bytes) { result_.bytes = std::move(bytes); }

  GgufAnatomy run() {
    number(4);  // magic
    number(4);  // version
    const uint64_t n_tensors = number(8);
    const uint64_t n_keys = number(8);
    for (uint64_t i = 0; i < n_keys; ++i) {
      const size_t begin = position_;
      text();
      value(static_cast<gguf_type>(number(4)));
      result_.keys.push_back({begin, position_});
    }
    for (uint64_t i = 0; i < n_tensors; ++i) {
      const size_t begin = position_;
      text();
      const uint64_t n_dimensions = number(4);
      for (uint64_t d = 0; d < n_dimensions; ++d) {
        number(8);
      }
      number(4);  // type
      number(8);  // offset
      result_.tensors.push_back({begin, position_});
    }
    result_.header_end = position_;
    return std::move(result_);
  }

 private:
  uint64_t number(size_t n_bytes) {
    uint64_t value = 0;
    std::memcpy(&value, result_.bytes.data() + position_, n_bytes);
    result_.numbers.push_back({position_, n_bytes});
    position_ += n_bytes;
    return value;
  }

  void text() {
    const uint64_t length = number(8);
    result_.texts.push_back({position_, length});
    position_ += length;
  }

  void value(gguf_type type) {
    switch (type) {
      case GGUF_TYPE_STRING:
        return text();
      case GGUF_TYPE_ARRAY: {
        const auto element = static_cast<gguf_type>(number(4));
        const uint64_t n = number(8);
        for (uint64_t i = 0; i < n; ++i) {
          value(element);
        }
        return;
      }
      case GGUF_TYPE_BOOL:
      case GGUF_TYPE_UINT8:
      case GGUF_TYPE_INT8:
        number(1);
        return;
      case GGUF_TYPE_UINT16:
      case GGUF_TYPE_INT16:
        number(2);
        return;
      case GGUF_TYPE_UINT64:
      case GGUF_TYPE_INT64:
      case GGUF_TYPE_FLOAT64:
        number(8);
        return;
      default:
        number(4);
    }
  }

  GgufAnatomy result_;
  size_t position_ = 0;
};

// Damages a file in one way, chosen by the seed.
class Damage {
 public:
  Damage(const GgufAnatomy& sound, uint64_t seed) : sound_(sound), random_(seed) {}

  std::string apply() {
    std::string bytes = sound_.bytes;
    switch (below(9)) {
      case 0:
        return flip_bytes(bytes, 1);
      case 1:
        return flip_bytes(bytes, 1 + below(16));
      case 2:
        return bytes.substr(0, truncation());
      case 3:
        return wild_numbers(bytes, 1);
      case 4:
        return wild_numbers(bytes, 1 + below(4));
      case 5:
        return edit_entries(sound_.keys, 16);
      case 6:
        return edit_entries(sound_.tensors, 8);
      case 7:
        return copy_text(bytes);
      default:
        return swap_numbers(bytes);
    }
  }

 private:
  std::string data() const { return sound_.bytes.substr(aligned(sound_.header_end)); }
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  template <typename T>
  const T& any(const std::vector<T>& items) {
    return items[below(items.size())];
  }

  // Half of the time in an entry chosen evenly: most bytes of a header belong to the tokens.
  size_t header_offset() {
    if (below(2) == 0) {
      return below(sound_.header_end);
    }
    const GgufEntry& entry = any(below(2) == 0 ? sound_.keys : sound_.tensors);
    return entry.begin + below(std::min<size_t>(entry.end - entry.begin, 100));
  }

  std::string flip_bytes(std::string bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      char& byte = bytes[header_offset()];
      byte =
          static_cast<char>(below(2) == 0 ? byte ^ (1 << below(8)) : static_cast<int>(below(256)));
    }
    return bytes;
  }

  size_t truncation() {
    switch (below(3)) {
      case 0:
        return below(sound_.bytes.size());
      case 1:
        return header_offset();
      default:
        return any(sound_.numbers).offset;
    }
  }

  // Numbers of the header itself and of the smaller entries come more often than those of the tokens.
  const GgufField& any_number() {
    const size_t offset = header_offset();
    const auto after = std::find_if(sound_.numbers.begin(), sound_.numbers.end(),
                                    [offset](const GgufField& f) { return f.offset >= offset; });
    if (below(8) == 0) {
      return sound_.numbers[below(4)];  // magic, version, counts
    }
    return after == sound_.numbers.end() ? sound_.numbers.back() : *after;
  }

  std::string wild_numbers(std::string bytes, size_t n) {
    for (size_t i = 0; i < n; ++i) {
      const GgufField& field = any_number();
      uint64_t old = 0;
      std::memcpy(&old, bytes.data() + field.offset, field.n_bytes);
      const uint64_t values[] = {0,
                                 1,
                                 2,
                                 7,
                                 old + 1,
                                 old - 1,
                                 old * 2,
                                 old / 2,
                                 ~uint64_t{0},
                                 INT32_MAX,
                                 uint64_t{1} << 31,
                                 UINT32_MAX,
                                 uint64_t{1} << 32,
                                 INT64_MAX,
                                 uint64_t{1} << 63,
                                 0x7fc00000,  // NaN
                                 0x7f800000,  // infinity
                                 below(64),
                                 below(1 << 20),
                                 random_()};
      const uint64_t value = values[below(std::size(values))];
      std::memcpy(bytes.data() + field.offset, &value, field.n_bytes);
    }
    return bytes;
  }

  std::string swap_numbers(std::string bytes) {
    const GgufField a = any_number();
    const GgufField b = any_number();
    const size_t n = std::min(a.n_bytes, b.n_bytes);
    const std::string kept = bytes.substr(a.offset, n);
    bytes.replace(a.offset, n, bytes, b.offset, n);
    return bytes.replace(b.offset, n, kept);
  }

  // One string's bytes over another's, which keeps its length.
  std::string copy_text(std::string bytes) {
    const GgufField from = any(sound_.texts);
    const GgufField to = any(sound_.texts);
    const size_t n = std::min(from.n_bytes, to.n_bytes);
    return bytes.replace(to.offset, n, bytes, from.offset, n);
  }

  // Removes an entry, puts it in twice, or puts another's bytes in its place; the count may be kept wrong.
  std::string edit_entries(const std::vector<GgufEntry>& entries, size_t count_offset) {
    const GgufEntry& entry = any(entries);
    const GgufEntry& other = any(entries);
    std::string header = sound_.bytes.substr(0, sound_.header_end);
    const std::string text = header.substr(other.begin, other.end - other.begin);
    int64_t change = 0;
    switch (below(3)) {
      case 0:
        header.erase(entry.begin, entry.end - entry.begin);
        change = -1;
        break;
      case 1:
        header.insert(entry.begin, text);
        change = 1;
        break;
      default:
        header.replace(entry.begin, entry.end - entry.begin, text);
    }
    if (below(4) != 0) {
      int64_t count = 0;
      std::memcpy(&count, header.data() + count_offset, sizeof count);
      count += change;
      std::memcpy(header.data() + count_offset, &count, sizeof count);
    }
    header.resize(aligned(header.size()));
    return header + data();
  }

  const GgufAnatomy& sound_;
  std::mt19937_64 random_;
};

}  // namespace

GgufAnatomy dissect(std::string bytes) {
  return Dissection(std::move(bytes)).run();
}

std::string damaged(const GgufAnatomy& sound, uint64_t seed) {
  return Damage(sound, seed).apply();
}

}  // namespace winnow::test
