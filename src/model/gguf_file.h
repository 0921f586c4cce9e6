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
  // length. Throws bad_data, unsupported (version, byte order, split file) or what MappedFile throws.
  explicit GgufFile(const std::string& path);
  ~GgufFile();

  const std::string& path() const { return file_.path(); }
  const MappedFile& file() const { return file_; }

  bool has(std::string_view key) const;
  bool is_array(std::string_view key) const;
  // Required values: throw bad_data when the key is missing, of another type or out of range. Any integer
  // type of the file is accepted for an integer.
  std::string string(std::string_view key) const;
  int64_t integer(std::string_view key, int64_t low, int64_t high) const;
  float number(std::string_view key, float low, float high) const;
  // Optional values: nullopt when missing, the same errors otherwise.
  std::optional<std::string> find_string(std::string_view key) const;
  std::optional<int64_t> find_integer(std::string_view key, int64_t low, int64_t high) const;
  std::optional<float> find_number(std::string_view key, float low, float high) const;
  std::optional<bool> find_bool(std::string_view key) const;

  // The tensor as a view of the mapped bytes, or null. The context that owns the descriptions lives here.
  ggml_tensor* find_tensor(std::string_view name) const;
  std::span<ggml_tensor* const> tensors() const;

  // Throw bad_data or unsupported for this file, with its path before `what`.
  [[noreturn]] void throw_damaged(const std::string& what) const;
  [[noreturn]] void throw_unsupported(const std::string& what) const;

  const gguf_context* raw() const;

 private:
  struct Content;

  void check_header() const;
  void read_content();
  void check_tensors() const;
  void place_tensors();
  // -1 when there is no such key.
  int64_t find_key(std::string_view key) const;

  MappedFile file_;
  std::unique_ptr<Content> content_;
};

// Checks the tokenizer's part of the file as strictly as libllama needs it (it aborts on duplicate tokens
// and trusts much of the rest). Throws bad_data or unsupported. Returns the number of tokens.
int check_vocabulary(const GgufFile& file);

// Text of a file in quotes, shortened and printable: for messages.
std::string quoted(std::string_view text);

}  // namespace winnow::model
