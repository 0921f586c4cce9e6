#include "model/fingerprint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <span>

#include "gguf.h"

namespace winnow::model {
namespace {

class Fnv1a {
 public:
  void add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) {
      hash_ = (hash_ ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
    }
  }
  uint64_t hash() const { return hash_; }

 private:
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace

std::string fingerprint(const GgufFile& file) {
  constexpr size_t kTensorBytes = 4096;
  const std::span<const std::byte> bytes = file.file().bytes();
  const uint64_t n_bytes = bytes.size();
  Fnv1a hash;
  hash.add(std::as_bytes(std::span(&n_bytes, 1)));
  hash.add(bytes.first(std::min<size_t>(gguf_get_data_offset(file.raw()), bytes.size())));
  for (const ggml_tensor* const tensor : file.tensors()) {
    hash.add(
        {static_cast<const std::byte*>(tensor->data), std::min(ggml_nbytes(tensor), kTensorBytes)});
  }
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx",
                static_cast<unsigned long long>(hash.hash()));  // NOLINT(google-runtime-int)
  return text.data();
}

}  // namespace winnow::model
