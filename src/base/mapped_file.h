// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace winnow {

class MappedFile {
 public:
  // Throws not_found, io (a directory, an empty file, no permission) or resource_exhausted.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

// The whole file as text; "-" reads standard input. Throws not_found or io.
std::string read_text_file(const std::string& path);

// Throws io when write_file_atomically() could not write there: for asking before the content exists.
void check_writable(const std::string& path);

// Writes a new file beside `path` and renames it, so that a reader never sees half of it.
// What exists and is no file (a pipe, /dev/null) is written to instead of being replaced. Throws io.
void write_file_atomically(const std::string& path, const std::string& content);

}  // namespace winnow
