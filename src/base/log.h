// Lines for the user, on standard error. Standard output belongs to generated text and results.
#pragma once

#include <string>

namespace winnow {

enum class LogLevel { kQuiet, kWarning, kInfo };

void set_log_level(LogLevel level);
void log_warning(const std::string& message);
void log_info(const std::string& message);

}  // namespace winnow
