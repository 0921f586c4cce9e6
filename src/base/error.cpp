#include "base/error.h"

#include <array>
#include <cstdio>
#include <cstdlib>

namespace winnow {
namespace {

// In the order of ErrorCode.
constexpr std::array<int, 8> kExitStatus{
    2,    // invalid_argument
    3,    // not_found
    4,    // unsupported
    5,    // bad_data
    6,    // resource_exhausted
    130,  // cancelled
    7,    // io
    1,    // internal
};

}  // namespace

int exit_status(ErrorCode code) {
  return kExitStatus.at(static_cast<size_t>(code));
}

void check_failed(const char* expression, const char* file, int line) {
  std::fprintf(stderr, "winnow: internal fault: %s failed at %s:%d\n", expression, file, line);
  std::abort();
}

}  // namespace winnow
