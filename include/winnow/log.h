// How much winnow says on standard error. Standard output is never written to.
#pragma once

namespace winnow {

enum class LogLevel { kQuiet, kWarning, kInfo };

// For the whole process; at first kInfo. The library itself says nothing but warnings, one line each.
void set_log_level(LogLevel level);

}  // namespace winnow
