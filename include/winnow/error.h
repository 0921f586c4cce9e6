// What winnow throws.
#pragma once

#include <stdexcept>
#include <string>

namespace winnow {

enum class ErrorCode {
  kInvalidArgument,    // an option or a value that is not allowed
  kNotFound,           // a file or a name that does not exist
  kUnsupported,        // valid, but not something winnow can do
  kBadData,            // a file that is damaged or contradicts itself, text that is not UTF-8
  kResourceExhausted,  // memory, address space or threads do not suffice
  kCancelled,          // the user stopped it
  kIo,                 // reading or writing failed
  kInternal,           // a fault of winnow
};

// Thrown for what a user or the machine did. The message names the thing, what was given and what is
// allowed; lower case, no full stop.
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace winnow
