// The text of a policy: `method[+part...][:key=value,key=value...]`, cut into its parts and put together again.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/option_reader.h"

namespace winnow::policy {

struct Spec {
  std::string method;
  std::vector<std::string> parts;     // transforms and allocators, in the order given
  std::vector<GivenOption> options;   // in the order given
  std::vector<std::string> problems;  // of form: each says which part
};

// Cuts and trims; never throws. Whether the names exist is for others to say.
Spec parse_spec(std::string_view text);

// Whether an option is given in the text of a policy.
bool has_option(std::string_view text, std::string_view name);

// The canonical text: the parts, such as "knorm+adakv", and the options that are not at their defaults, in the order they
// were read; also those that parts imply, where they would be taken for implied if they were left out.
std::string format_spec(std::string_view parts, std::span<const OptionReader::Read> options,
                        std::span<const GivenOption> implied = {});

}  // namespace winnow::policy
