#include "base/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "base/error.h"

namespace winnow {
namespace {

[[noreturn]] void throw_unwritable(const std::string& path, const std::string& reason) {
  throw Error(ErrorCode::kIo, "cannot write '" + path + "': " + reason);
}

// True for what exists and is not a file. Throws io for a directory.
bool is_device(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return false;
  }
  if (S_ISDIR(status.st_mode)) {
    throw_unwritable(path, "it is a directory");
  }
  return !S_ISREG(status.st_mode);
}

// The file that a symbolic link leads to: the link stays one. Throws io when it leads nowhere.
std::string behind_links(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) {
    return path;
  }
  std::string target = std::filesystem::canonical(path, error).string();
  if (error) {
    throw_unwritable(path, "it is a link, and " + error.message());
  }
  return target;
}

std::string temporary_beside(const std::string& path) {
  return path + ".part" + std::to_string(::getpid());
}

// False, with errno, where that is not possible.
bool write_all(int fd, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) {
      return false;
    }
    bytes = bytes.subspan(static_cast<size_t>(std::max<ssize_t>(n, 0)));
  }
  return true;
}

}  // namespace

void throw_errno(const std::string& path, const char* action) {
  const int code = errno;
  const std::string message =
      std::string("cannot ") + action + " '" + path + "': " + std::strerror(code);
  throw Error(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo, message);
}

std::string read_text_file(const std::string& path) {
  if (path == "-") {
    std::string text{std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
    if (std::ferror(stdin) != 0) {  // the stream takes what cannot be read for the end
      throw_errno("standard input", "read");
    }
    return text;
  }
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    throw_errno(path, "open");
  }
  if (S_ISDIR(status.st_mode)) {
    throw Error(ErrorCode::kIo, "'" + path + "' is a directory; a file is needed");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw_errno(path, "open");
  }
  try {
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  } catch (
      const std::ios_base::failure&) {  // thrown past the stream's state, and no lack of memory
    throw_errno(path, "read");
  }
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored) ||
         std::filesystem::weakly_canonical(a, ignored) ==
             std::filesystem::weakly_canonical(b, ignored);
}

void check_writable(const std::string& path, std::span<const std::string> read) {
  if (is_device(path)) {
    return;  // opening a pipe would wait for its reader
  }
  for (const std::string& input : read) {
    if (!input.empty() && is_same_file(path, input)) {
      throw Error(ErrorCode::kInvalidArgument, "'" + path + "' is to be written, and is read as '" +
                                                   input +
                                                   "', which would be lost; give another path");
    }
  }
  const std::string temporary = temporary_beside(behind_links(path));
  if (!std::ofstream(temporary, std::ios::binary)) {
    throw_unwritable(path, std::strerror(errno));
  }
  ::unlink(temporary.c_str());
}

NewFile::NewFile(const std::string& path)
    : path_(path),
      is_replaced_(!is_device(path)),
      target_(is_replaced_ ? behind_links(path) : path),
      written_(is_replaced_ ? temporary_beside(target_) : target_),
      fd_(::open(written_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (fd_ < 0) {
    fail();
  }
}

NewFile::~NewFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    if (is_replaced_) {
      ::unlink(written_.c_str());
    }
  }
}

void NewFile::fail() const {
  throw_unwritable(path_, std::strerror(errno));
}

void NewFile::write(std::span<const std::byte> bytes) {
  if (!write_all(fd_, bytes)) {
    fail();
  }
}

void NewFile::finish() {
  // Before the name: after a crash it must not stand for what never reached the disk.
  if (is_replaced_ && ::fsync(fd_) != 0) {
    fail();
  }
  if (is_replaced_ && std::rename(written_.c_str(), target_.c_str()) != 0) {
    fail();
  }
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) {
    fail();
  }
}

AppendFile::AppendFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) {
    throw_errno(path_, "open");
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    throw Error(ErrorCode::kIo, "'" + path_ + "' is no regular file");
  }
}

AppendFile::~AppendFile() {
  ::close(fd_);
}

bool AppendFile::lock() {
  return ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
}

void AppendFile::truncate(size_t n_bytes) {
  const auto end = static_cast<off_t>(n_bytes);
  if (::ftruncate(fd_, end) != 0 || ::lseek(fd_, end, SEEK_SET) < 0) {
    throw_errno(path_, "write");
  }
}

void AppendFile::append(std::span<const std::byte> bytes) {
  if (!write_all(fd_, bytes) || ::fdatasync(fd_) != 0) {
    throw_errno(path_, "write");
  }
}

void write_file_atomically(const std::string& path, const std::string& content) {
  NewFile file(path);
  file.write(std::as_bytes(std::span(content)));
  file.finish();
}

}  // namespace winnow
