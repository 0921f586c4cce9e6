// Whole files: reading text, and writing so that nobody sees half of it.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace winnow {

// The whole file as text; "-" reads standard input. Throws not_found or io.
std::string read_text_file(const std::string& path);

// Throws io when write_file_atomically() could not write there: for asking before the content exists. Throws invalid_argument
// where that is one of the files that are `read`, and would be lost.
void check_writable(const std::string& path, std::span<const std::string> read = {});

// Whether both lead to the same place, be there a file or none.
bool is_same_file(const std::string& a, const std::string& b);

// A file that is written beside `path`, and takes its place once it is whole: neither a reader nor a crash sees half of
// it. What exists and is no file (a pipe, /dev/null) is written to instead of being replaced; so is what a link leads to.
class NewFile {
 public:
  // Throws io, as the others do.
  explicit NewFile(const std::string& path);
  ~NewFile();  // without finish(), nothing has happened at `path`
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  [[noreturn]] void fail() const;

  std::string path_;
  bool is_replaced_;     // a file is; a device is written to
  std::string target_;   // what a link leads to
  std::string written_;  // the file beside it
  int fd_;
};

// A file that is added to, and not replaced.
class AppendFile {
 public:
  // Makes it where there is none. Throws io: also for what is no regular file.
  explicit AppendFile(const std::string& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Keeps others from locking it until this one is closed; false where another has.
  bool lock();
  // Cuts it to its first n_bytes, which is where append() goes on. Throws io.
  void truncate(size_t n_bytes);
  // On the disk once it returns. Throws io.
  void append(std::span<const std::byte> bytes);

 private:
  std::string path_;
  int fd_;
};

// The whole of a NewFile. Throws io.
void write_file_atomically(const std::string& path, const std::string& content);

// Throws what errno says of `path`: not_found, or io. `action` completes "cannot …".
[[noreturn]] void throw_errno(const std::string& path, const char* action);

}  // namespace winnow
