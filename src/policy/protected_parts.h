// The parts of prompts that a spec protects: protect=system+question+user@50%.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/spans.h"

namespace winnow::policy {

enum class PromptPart {
  kSystem,     // the text of the system message
  kTemplate,   // what stands before the user's text, the system message included
  kUser,       // document and question, to the prompt's end
  kQuestion,   // from the document's end to the prompt's
  kAssistant,  // answers to earlier prompts
};

struct ProtectedPart {
  PromptPart part;
  Floor floor;
};

// What parse_protected_parts() allows, for people.
inline constexpr const char* kProtectedPartsRange =
    "none, or system, template, user, question and assistant, with + in between and each with a "
    "floor (@8, @50%) if not all of it";

// In the order of PromptPart, each at most once. "none" is empty; "both" is template+question. Throws invalid_argument: an
// unknown part, one given twice, what parse_floor throws.
std::vector<ProtectedPart> parse_protected_parts(std::string_view text);

// The canonical spelling, which parses to the same parts.
std::string to_string(const std::vector<ProtectedPart>& parts);

}  // namespace winnow::policy
