// A summary as tables.
#pragma once

#include <string>

#include "eval/summary.h"

namespace winnow::cli {

std::string summary_text(const eval::Summary& summary);

}  // namespace winnow::cli
