// Damages GGUF files on purpose, reproducibly, where it hurts: counts, lengths, types, offsets, entries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace winnow::test {

// A number in the file: where it is and how long.
struct GgufField {
  size_t offset;
  size_t n_bytes;
};

// One key with its value, or one tensor's description: [begin, end) in the file.
struct GgufEntry {
  size_t begin;
  size_t end;
};

// The bytes of a sound file with the places of everything that can be damaged.
struct GgufAnatomy {
  std::string bytes;
  std::vector<GgufField> numbers;
  std::vector<GgufField> texts;  // the bytes of strings
  std::vector<GgufEntry> keys;
  std::vector<GgufEntry> tensors;
  size_t header_end = 0;
};

// `bytes` is a sound file with the default alignment.
GgufAnatomy dissect(std::string bytes);

// The file, damaged in one of nine ways that the seed chooses: bytes flipped, the end cut off, numbers set to
// wild values or swapped, keys or tensors removed, doubled or replaced, texts copied over others.
std::string damaged(const GgufAnatomy& sound, uint64_t seed);

}  // namespace winnow::test
