// Reading and spelling the words and numbers that users write.
#pragma once

#include <string>
#include <string_view>

namespace winnow {

std::string_view trim(std::string_view text);

// The shortest decimal that reads back as the same number, without an exponent: "0.1", "512".
std::string number_text(double value);
std::string number_text(float value);
std::string number_text(int value);

// "3.10": with so many digits after the point, for people.
std::string rounded_text(double value, int n_decimals);

}  // namespace winnow
