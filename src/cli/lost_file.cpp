#include "cli/lost_file.h"

#include <unistd.h>

#include <csignal>
#include <string_view>

#include "base/error.h"

namespace winnow::cli {
namespace {

void on_lost_file(int /*signal*/) {
  constexpr std::string_view kMessage =
      "winnow: error: the model's file or the cache's was cut off or cannot be read any more\n";
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, kMessage.data(), kMessage.size());
  ::_exit(exit_status(ErrorCode::kIo));
}

}  // namespace

void report_lost_file() {
  std::signal(SIGBUS, on_lost_file);
}

}  // namespace winnow::cli
