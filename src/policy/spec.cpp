#include "policy/spec.h"

#include <algorithm>

#include "base/text.h"

namespace winnow::policy {
namespace {

std::string quoted(std::string_view text) {
  return "'" + std::string(text) + "'";
}

void parse_option(std::string_view text, int number, Spec& spec) {
  const std::string place = "option " + std::to_string(number);
  const size_t equals = text.find('=');
  if (text.empty()) {
    spec.problems.push_back(place + " is empty");
    return;
  }
  const std::string_view name = trim(text.substr(0, equals));
  const std::string_view value =
      equals == std::string_view::npos ? "" : trim(text.substr(equals + 1));
  if (name.empty() || value.empty()) {
    spec.problems.push_back(place + " " + quoted(text) + " is not of the form key=value");
    return;
  }
  const bool is_repeated = std::any_of(spec.options.begin(), spec.options.end(),
                                       [&](const GivenOption& each) { return each.name == name; });
  if (is_repeated) {
    spec.problems.push_back(place + " " + quoted(text) + " gives " + quoted(name) +
                            " a second time");
    return;
  }
  spec.options.push_back({std::string(name), std::string(value)});
}

void parse_parts(std::string_view text, Spec& spec) {
  size_t plus = text.find('+');
  spec.method = trim(text.substr(0, plus));
  while (plus != std::string_view::npos) {
    text.remove_prefix(plus + 1);
    plus = text.find('+');
    const std::string_view name = trim(text.substr(0, plus));
    if (name.empty()) {
      spec.problems.push_back("nothing stands after a '+'");
    } else {
      spec.parts.emplace_back(name);
    }
  }
}

}  // namespace

Spec parse_spec(std::string_view text) {
  Spec spec;
  const size_t colon = text.find(':');
  parse_parts(text.substr(0, colon), spec);
  if (colon == std::string_view::npos) {
    return spec;
  }
  std::string_view rest = text.substr(colon + 1);
  for (int number = 1;; ++number) {
    const size_t comma = rest.find(',');
    parse_option(trim(rest.substr(0, comma)), number, spec);
    if (comma == std::string_view::npos) {
      return spec;
    }
    rest.remove_prefix(comma + 1);
  }
}

bool has_option(std::string_view text, std::string_view name) {
  const std::vector<GivenOption> options = parse_spec(text).options;
  return std::ranges::any_of(options,
                             [name](const GivenOption& option) { return option.name == name; });
}

std::string format_spec(std::string_view parts, std::span<const OptionReader::Read> options,
                        std::span<const GivenOption> implied) {
  std::string text(parts);
  char separator = ':';
  for (const OptionReader::Read& option : options) {
    const std::string& name = option.description.name;
    if (option.value != option.description.default_value ||
        std::ranges::count(implied, name, &GivenOption::name) > 0) {
      text += separator + name + "=" + option.value;
      separator = ',';
    }
  }
  return text;
}

}  // namespace winnow::policy
