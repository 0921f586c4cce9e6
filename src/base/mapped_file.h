// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace winnow {

class MappedFile {
 public:
  // Throws not_found, io (not a regular file, no permission), bad_data (an empty file) or resource_exhausted.
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

}  // namespace winnow
