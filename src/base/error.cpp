#include "base/error.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace winnow {
namespace {

struct CodeRow {
  const char* name;
  int exit_status;
};

// In the order of ErrorCode.
constexpr std::array<CodeRow, 8> kCodes{{
    {"invalid_argument", 2},
    {"not_found", 3},
    {"unsupported", 4},
    {"bad_data", 5},
    {"resource_exhausted", 6},
    {"cancelled", 130},
    {"io", 7},
    {"internal", 1},
}};

const CodeRow& row(ErrorCode code) {
  return kCodes.at(static_cast<size_t>(code));
}

}  // namespace

const char* error_code_name(ErrorCode code) {
  return row(code).name;
}

int exit_status(ErrorCode code) {
  return row(code).exit_status;
}

void check_failed(const char* expression, const std::string& values, const char* file, int line) {
  std::fprintf(stderr, "winnow: internal fault: %s failed%s%s at %s:%d\n", expression,
               values.empty() ? "" : ": ", values.c_str(), file, line);
  std::abort();
}

}  // namespace winnow
