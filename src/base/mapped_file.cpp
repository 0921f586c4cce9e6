#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace winnow {
namespace {

class Descriptor {
 public:
  // NONBLOCK: opening a pipe, which is refused later, would wait for its writer.
  explicit Descriptor(const std::string& path)
      : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    if (fd_ < 0) {
      throw_errno(path, "open");
    }
  }
  ~Descriptor() { ::close(fd_); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) {
    throw_errno(path, "inspect");
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kIo, "'" + path + "' is a directory; a file is needed");
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorCode::kIo, "'" + path + "' is not a regular file");
  }
  if (status.st_size == 0) {
    throw Error(ErrorCode::kBadData, "'" + path + "' is empty");
  }
  size_ = static_cast<size_t>(status.st_size);
  void* const mapping = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapping == MAP_FAILED) {
    throw Error(
        errno == ENOMEM ? ErrorCode::kResourceExhausted : ErrorCode::kIo,
        "cannot map '" + path + "' (" + std::to_string(size_) + " bytes): " + std::strerror(errno));
  }
  data_ = static_cast<const std::byte*>(mapping);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) {
    ::munmap(const_cast<std::byte*>(data_), size_);
  }
}

}  // namespace winnow
