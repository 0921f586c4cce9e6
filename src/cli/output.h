// Results on standard output: a disk that is full must not look like success.
#pragma once

#include <string_view>

namespace winnow::cli {

// Writes `text` and whatever was printed before it. Throws io when that is not possible.
void write_output(std::string_view text);

}  // namespace winnow::cli
