// A GGUF file, mapped, with everything it states checked before it is used.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "ggml.h"

struct gguf_context;

namespace winnow::model {

class GgufFile {
 public:
  // Maps `path` and checks magic, version, counts, alignment, tensor types, shapes, offsets and the file's
  // length. Throws bad_data, unsupported (version, byte order, tensor type, split file) or what MappedFile throws.
  explicit GgufFile(const std::string& path);
  ~GgufFile();

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }

  bool has(std::string_view key) const;
  // Required values: throw bad_data when the key is missing, of another type or out of range. Any integer
  // type of the file is accepted for an integer.
  std::string string(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t low, int64_t high) const;
  float number(std::string_view key, float low, float high) const;
  // Optional values: nullopt when missing, the same errors otherwise.
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<float> find_number(std::string_view key, float low, float high) const;

  // The tensor as a view of the mapped bytes, or null. The context that owns the descriptions lives here.
  ggml_tensor* find_tensor(std::string_view name) const;
  std::span<ggml_tensor* const> tensors() const;

  const gguf_context* raw() const;

 private:
  struct Content;
  MappedFile file_;
  std::unique_ptr<Content> content_;
};

// Checks the tokenizer's part of the file as strictly as libllama needs it (it aborts on duplicate tokens,
// arrays of unequal length and ids out of range). Throws bad_data or unsupported. Returns the number of tokens.
int check_vocabulary(const GgufFile& file);

}  // namespace winnow::model
