// Files of models and caches are mapped: where one is cut off meanwhile, or its disk fails, reading it is a signal and no error.
#pragma once

namespace winnow::cli {

// From now on the process ends with a message and the exit status for io when that happens.
void report_lost_file();

}  // namespace winnow::cli
