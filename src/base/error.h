// The one exception type, and CHECK for what must hold whatever the user does.
#pragma once

#include <stdexcept>
#include <string>

namespace winnow {

enum class ErrorCode {
  kInvalidArgument,    // an option or a value that is not allowed
  kNotFound,           // a file or a name that does not exist
  kUnsupported,        // valid, but not something winnow can do
  kBadData,            // a file that is damaged or contradicts itself
  kResourceExhausted,  // memory or address space does not suffice
  kCancelled,          // the user stopped it
  kIo,                 // reading or writing failed
  kInternal,           // a fault of winnow
};

// The exit status of the program for an error of this kind (docs/cli.md).
int exit_status(ErrorCode code);

// Thrown for what a user or the machine did. The message names the thing, what was given and what is
// allowed; lower case, no full stop.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace winnow

// For what winnow itself must guarantee. Never used on input.
#define WINNOW_CHECK(condition)                               \
  do {                                                        \
    if (!(condition)) {                                       \
      ::winnow::check_failed(#condition, __FILE__, __LINE__); \
    }                                                         \
  } while (false)
