// Finds what a user may have meant by a name that does not exist.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace winnow {

// The name with the smallest edit distance; empty when none is close. The first of equals.
std::string_view nearest_name(std::string_view given, std::span<const std::string_view> names);

// "unknown KIND 'GIVEN' (did you mean 'NEAREST'? allowed: all names)": for messages.
std::string unknown_name(std::string_view kind, std::string_view given,
                         std::span<const std::string_view> names);

}  // namespace winnow
