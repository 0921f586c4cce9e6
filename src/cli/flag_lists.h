// Flags that take lists: given several times, or once with a separator between the items.
#pragma once

#include <string>
#include <vector>

namespace winnow::cli {

// The items of all lists of a flag. Throws invalid_argument, naming the flag, for an empty one.
std::vector<std::string> split_lists(const std::vector<std::string>& lists, const char* flag,
                                     char separator);

}  // namespace winnow::cli
