#include "base/log.h"

#include <atomic>
#include <cstdio>

namespace winnow {
namespace {

std::atomic<LogLevel> current_level{LogLevel::kInfo};

void print(LogLevel level, const char* prefix, const std::string& message) {
  if (level <= current_level.load()) {
    std::fprintf(stderr, "%s%s\n", prefix, message.c_str());
  }
}

}  // namespace

void set_log_level(LogLevel level) {
  current_level = level;
}
void log_warning(const std::string& message) {
  print(LogLevel::kWarning, "warning: ", message);
}
void log_info(const std::string& message) {
  print(LogLevel::kInfo, "", message);
}

}  // namespace winnow
