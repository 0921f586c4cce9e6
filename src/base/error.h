// The one exception type, its exit statuses, and CHECK for what must hold whatever the user does.
#pragma once

#include "winnow/error.h"

namespace winnow {

// The exit status of the program for an error of this kind (docs/cli.md).
int exit_status(ErrorCode code);

[[noreturn]] void check_failed(const char* expression, const char* file, int line);

}  // namespace winnow

// For what winnow itself must guarantee. Never used on input.
#define WINNOW_CHECK(condition)                               \
  do {                                                        \
    if (!(condition)) {                                       \
      ::winnow::check_failed(#condition, __FILE__, __LINE__); \
    }                                                         \
  } while (false)
