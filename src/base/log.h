// Lines for the user, on standard error. Standard output belongs to generated text and results.
#pragma once

#include <string>

#include "winnow/log.h"

namespace winnow {

void log_warning(const std::string& message);
void log_info(const std::string& message);

}  // namespace winnow
