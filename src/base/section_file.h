// A file of named sections under one checksum: no byte of it changes, goes or comes unnoticed.
//
// Little-endian, without padding: magic [8], version u32, number of sections u32, length of the file u64; then each
// section as length of its name u32, name, length of its content u64, content; then XXH3 (64 bits) of all before.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/mapped_file.h"

namespace winnow {

static_assert(std::endian::native == std::endian::little, "files are little-endian, as memory is");

template <class T>
concept FileNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

struct SectionFormat {
  std::array<char, 8> magic;
  uint32_t version;
  const char* name;  // what messages call such a file: "cache file"
};

class SectionWriter {
 public:
  // What is put from now on is part of this section.
  void begin(std::string_view name);

  template <FileNumber T>
  void put(T value) {
    put_bytes(std::as_bytes(std::span(&value, 1)));
  }
  void put_flag(bool value) { put(static_cast<uint8_t>(value)); }
  void put_text(std::string_view text);  // with its length before it
  template <FileNumber T>
  void put_array(std::span<const T> values) {  // their number is not written
    put_bytes(std::as_bytes(values));
  }
  // The same without a copy: the bytes must stay until the file is written.
  void refer(std::span<const std::byte> bytes);

  // Throws io, and leaves what was at `path` as it was.
  void write(const std::string& path, const SectionFormat& format) const;

 private:
  struct Piece {
    std::string copied;  // or
    std::span<const std::byte> referred;

    std::span<const std::byte> bytes() const {
      return copied.empty() ? referred : std::as_bytes(std::span(copied));
    }
  };
  struct Section {
    std::string name;
    std::vector<Piece> pieces;

    uint64_t n_bytes() const;
  };

  void put_bytes(std::span<const std::byte> bytes);

  std::vector<Section> sections_;
};

// Reads a section from its start. What does not work out is bad_data, with the path and the section's name.
class SectionReader {
 public:
  SectionReader(std::string where, std::span<const std::byte> bytes)
      : where_(std::move(where)), bytes_(bytes) {}

  template <FileNumber T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  // Throws where it is not within [low, high].
  int get_int(const char* what, int low, int high);
  bool get_flag(const char* what);
  std::string get_text();
  template <FileNumber T>
  std::vector<T> get_array(size_t n) {
    check_left(n, sizeof(T));
    std::vector<T> values(n);
    if (n > 0) {
      std::memcpy(values.data(), take(n * sizeof(T)).data(), n * sizeof(T));
    }
    return values;
  }
  std::span<const std::byte> take(size_t n_bytes);
  size_t n_left() const { return bytes_.size(); }
  void expect_end() const;

  [[noreturn]] void fail(const std::string& problem) const;

 private:
  void check_left(size_t n, size_t size) const;

  std::string where_;
  std::span<const std::byte> bytes_;
};

class SectionFile {
 public:
  // Maps the file and checks its form. Throws what MappedFile throws, bad_data (another kind of file, cut off, changed),
  // or unsupported (another version).
  SectionFile(const std::string& path, const SectionFormat& format);

  const std::string& path() const { return file_->path(); }
  uint64_t n_bytes() const { return file_->bytes().size(); }
  bool has(std::string_view name) const;
  // Throws bad_data where it is missing. Readers refer to the mapped file.
  SectionReader read(std::string_view name);
  // Throws unsupported where there is a section that was never read: what it says would be lost.
  void refuse_others() const;

 private:
  struct Section {
    std::string name;
    std::span<const std::byte> bytes;
    bool is_read = false;
  };

  std::string kind_;
  std::unique_ptr<const MappedFile> file_;
  std::vector<Section> sections_;
};

}  // namespace winnow
