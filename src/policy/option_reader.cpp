#include "policy/option_reader.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/text.h"

namespace winnow::policy {
namespace {

// True when all of `text` is a number; `error` then says whether the type can hold it.
template <typename Number>
bool is_number(std::string_view text, Number& number, std::errc& error) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  error = result.ec;
  return error != std::errc::invalid_argument && result.ptr == text.data() + text.size();
}

std::string range_text(const std::string& min, const std::string& max) {
  return min + " to " + max;
}

}  // namespace

const std::string* OptionReader::find(std::string_view name) const {
  const auto option = std::find_if(given_.begin(), given_.end(),
                                   [&](const GivenOption& each) { return each.name == name; });
  return option == given_.end() ? nullptr : &option->value;
}

void OptionReader::give_default(std::string_view name, std::string_view value) {
  if (!is_given(name)) {
    given_.push_back({std::string(name), std::string(value)});
  }
}

void OptionReader::refuse_value(std::string_view name, std::string_view value,
                                const std::string& reason) {
  add_problem(std::string(name) + "=" + std::string(value) + " " + reason);
}

void OptionReader::operator()(int& field, std::string_view name, int min, int max,
                              std::string_view help) {
  const std::string default_value = std::to_string(field);
  const std::string range = range_text(std::to_string(min), std::to_string(max));
  if (const std::string* text = find(name)) {
    int value = 0;
    std::errc error{};
    if (!is_number(*text, value, error)) {
      refuse_value(name, *text, "is not a whole number (allowed: " + range + ")");
    } else if (error != std::errc() || value < min || value > max) {
      refuse_value(name, *text, "is out of range (allowed: " + range + ")");
    } else {
      field = value;
    }
  }
  options_.push_back(
      {{std::string(name), "int", default_value, range, std::string(help)}, std::to_string(field)});
}

void OptionReader::operator()(float& field, std::string_view name, float min, float max,
                              std::string_view help) {
  const std::string default_value = number_text(field);
  const std::string range = range_text(number_text(min), number_text(max));
  if (const std::string* text = find(name)) {
    float value = 0;
    std::errc error{};
    if (!is_number(*text, value, error)) {
      refuse_value(name, *text, "is not a number (allowed: " + range + ")");
    } else if (error != std::errc() || !(value >= min && value <= max)) {  // NaN is in no range
      refuse_value(name, *text, "is out of range (allowed: " + range + ")");
    } else {
      field = value;
    }
  }
  options_.push_back(
      {{std::string(name), "float", default_value, range, std::string(help)}, number_text(field)});
}

void OptionReader::operator()(bool& field, std::string_view name, std::string_view help) {
  const std::string default_value = field ? "true" : "false";
  if (const std::string* text = find(name)) {
    if (*text != "true" && *text != "false") {
      refuse_value(name, *text, "is neither true nor false");
    } else {
      field = *text == "true";
    }
  }
  options_.push_back({{std::string(name), "bool", default_value, "true|false", std::string(help)},
                      field ? "true" : "false"});
}

void OptionReader::operator()(std::string& field, std::string_view name,
                              std::initializer_list<std::string_view> choices,
                              std::string_view help) {
  const std::string default_value = field;
  std::string range;
  for (const std::string_view choice : choices) {
    range += (range.empty() ? "" : "|") + std::string(choice);
  }
  if (const std::string* text = find(name)) {
    if (std::find(choices.begin(), choices.end(), *text) == choices.end()) {
      refuse_value(name, *text, "is not one of " + range);
    } else {
      field = *text;
    }
  }
  options_.push_back(
      {{std::string(name), "choice", default_value, range, std::string(help)}, field});
}

void OptionReader::operator()(std::string& field, std::string_view name, std::string_view form,
                              std::string_view help) {
  const std::string default_value = field;
  if (const std::string* text = find(name)) {
    field = *text;
  }
  options_.push_back(
      {{std::string(name), "text", default_value, std::string(form), std::string(help)}, field});
}

void OptionReader::operator()(Budget& field, std::string_view name, std::string_view help) {
  const bool is_required = field.unit == Budget::Unit::kUnlimited;
  const std::string default_value = is_required ? "" : field.to_string();
  if (const std::string* text = find(name)) {
    try {
      field = parse_budget(*text);
    } catch (const Error& error) {
      add_problem(error.what());
    }
  }
  options_.push_back({{std::string(name), "budget", default_value,
                       "512 rows, 10% of the document, or 64MiB", std::string(help)},
                      field.to_string()});
}

void OptionReader::operator()(std::vector<ProtectedPart>& field, std::string_view name,
                              std::string_view help) {
  const std::string default_value = to_string(field);
  if (const std::string* text = find(name)) {
    try {
      field = parse_protected_parts(*text);
    } catch (const Error& error) {
      refuse_value(name, *text, std::string("is refused: ") + error.what());
    }
  }
  options_.push_back(
      {{std::string(name), "parts", default_value, kProtectedPartsRange, std::string(help)},
       to_string(field)});
}

std::vector<OptionDescription> OptionReader::descriptions() const {
  std::vector<OptionDescription> descriptions;
  descriptions.reserve(options_.size());
  for (const Read& option : options_) {
    descriptions.push_back(option.description);
  }
  return descriptions;
}

void OptionReader::refuse_unknown() {
  std::vector<std::string_view> names;
  names.reserve(options_.size());
  for (const Read& option : options_) {
    names.push_back(option.description.name);
  }
  for (const GivenOption& given : given_) {
    if (std::find(names.begin(), names.end(), given.name) == names.end()) {
      add_problem(unknown_name("option", given.name, names));
    }
  }
}

}  // namespace winnow::policy
