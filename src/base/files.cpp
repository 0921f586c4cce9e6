#include "base/files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>

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

void check_writable(const std::string& path) {
  if (is_device(path)) {
    return;  // opening a pipe would wait for its reader
  }
  const std::string temporary = temporary_beside(behind_links(path));
  if (!std::ofstream(temporary, std::ios::binary)) {
    throw_unwritable(path, std::strerror(errno));
  }
  ::unlink(temporary.c_str());
}

void write_file_atomically(const std::string& path, const std::string& content) {
  const bool is_replaced = !is_device(path);
  const std::string target = is_replaced ? behind_links(path) : path;
  const std::string written = is_replaced ? temporary_beside(target) : target;
  std::ofstream file(written, std::ios::binary | std::ios::trunc);
  file.write(content.data(), static_cast<std::streamsize>(content.size()));
  file.close();
  if (!file || (is_replaced && std::rename(written.c_str(), target.c_str()) != 0)) {
    const std::string reason = std::strerror(errno);
    if (is_replaced) {
      ::unlink(written.c_str());
    }
    throw_unwritable(path, reason);
  }
}

}  // namespace winnow
