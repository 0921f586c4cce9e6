#include "base/text.h"

#include <array>
#include <charconv>

#include "base/error.h"

namespace winnow {
namespace {

// `precision`: none for the shortest that reads back, or how many digits after the point.
template <typename Number, typename... Precision>
std::string fixed_text(Number value, Precision... precision) {
  std::array<char, 400> buffer{};  // the longest double has 309 digits before the point
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::fixed, precision...);
  WINNOW_CHECK(error == std::errc());
  return {buffer.data(), end};
}

}  // namespace

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  if (begin == std::string_view::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kSpaces) - begin + 1);
}

std::string number_text(double value) {
  return fixed_text(value);
}
std::string number_text(float value) {
  return fixed_text(value);
}
std::string number_text(int value) {
  return std::to_string(value);
}

std::string rounded_text(double value, int n_decimals) {
  return fixed_text(value, n_decimals);
}

}  // namespace winnow
