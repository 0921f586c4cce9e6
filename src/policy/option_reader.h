// Reads the key=value pairs of a spec into option structs through their visitors, and collects every problem on the
// way. The same visit describes the options, so help texts and echoes cannot differ from what is read.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "policy/budget.h"
#include "policy/protected_parts.h"

namespace winnow::policy {

struct GivenOption {
  std::string name;
  std::string value;
};

// For help texts and `winnow methods --json`.
struct OptionDescription {
  std::string name;
  std::string type;           // "int", "float", "bool", "choice", "text", "budget" or "parts"
  std::string default_value;  // as it is spelled in a spec; empty: the option must be given
  std::string range;          // "0 to 1048576", "low|high"
  std::string help;
};

class OptionReader {
 public:
  explicit OptionReader(std::vector<GivenOption> given = {}) : given_(std::move(given)) {}

  bool is_given(std::string_view name) const { return find(name) != nullptr; }
  // Adds an option unless the user gave it.
  void give_default(std::string_view name, std::string_view value);

  // The kinds of field that a visitor may name. The field holds its default and takes the given value; a value that
  // is not allowed leaves the default and becomes a problem.
  void operator()(int& field, std::string_view name, int min, int max, std::string_view help);
  void operator()(float& field, std::string_view name, float min, float max, std::string_view help);
  void operator()(bool& field, std::string_view name, std::string_view help);
  void operator()(std::string& field, std::string_view name,
                  std::initializer_list<std::string_view> choices, std::string_view help);
  // Any text; `form` says what is expected: "FILE".
  void operator()(std::string& field, std::string_view name, std::string_view form,
                  std::string_view help);
  void operator()(Budget& field, std::string_view name, std::string_view help);
  void operator()(std::vector<ProtectedPart>& field, std::string_view name, std::string_view help);

  struct Read {
    OptionDescription description;
    std::string value;  // of the field, spelled like the default
  };
  // Every field visited so far, in order.
  const std::vector<Read>& options() const { return options_; }
  std::vector<OptionDescription> descriptions() const;

  void add_problem(std::string problem) { problems_.push_back(std::move(problem)); }
  // Turns given options that no visitor named into problems. Called after the last visit.
  void refuse_unknown();
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  const std::string* find(std::string_view name) const;  // the given value, or null
  void refuse_value(std::string_view name, std::string_view value, const std::string& reason);

  std::vector<GivenOption> given_;
  std::vector<Read> options_;
  std::vector<std::string> problems_;
};

template <typename Options>
Options read_options(OptionReader& reader) {
  Options options;
  options.visit(reader);
  return options;
}

}  // namespace winnow::policy
