// Whole files: reading text, and writing so that nobody sees half of it.
#pragma once

#include <string>

namespace winnow {

// The whole file as text; "-" reads standard input. Throws not_found or io.
std::string read_text_file(const std::string& path);

// Throws io when write_file_atomically() could not write there: for asking before the content exists.
void check_writable(const std::string& path);

// Writes a new file beside `path` and renames it, so that a reader never sees half of it.
// What exists and is no file (a pipe, /dev/null) is written to instead of being replaced; so is what a link leads to.
// Throws io.
void write_file_atomically(const std::string& path, const std::string& content);

// Throws what errno says of `path`: not_found, or io. `action` completes "cannot …".
[[noreturn]] void throw_errno(const std::string& path, const char* action);

}  // namespace winnow
