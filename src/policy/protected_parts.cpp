#include "policy/protected_parts.h"

#include <algorithm>

#include "base/error.h"
#include "base/name_table.h"
#include "base/text.h"

namespace winnow::policy {
namespace {

constexpr NameTable<PromptPart, 5> kParts{"part of a prompt",
                                          {{PromptPart::kSystem, "system"},
                                           {PromptPart::kTemplate, "template"},
                                           {PromptPart::kUser, "user"},
                                           {PromptPart::kQuestion, "question"},
                                           {PromptPart::kAssistant, "assistant"}}};

}  // namespace

std::vector<ProtectedPart> parse_protected_parts(std::string_view text) {
  if (text == "none") {
    return {};
  }
  if (text == "both") {
    return {{PromptPart::kTemplate, {}}, {PromptPart::kQuestion, {}}};
  }
  std::vector<ProtectedPart> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    const FlooredText given = split_floor(trim(text.substr(begin, end - begin)));
    const ProtectedPart part{kParts.parse(given.text), given.floor};
    if (std::ranges::find(parts, part.part, &ProtectedPart::part) != parts.end()) {
      throw Error(ErrorCode::kInvalidArgument, "'" + std::string(given.text) + "' is there twice");
    }
    parts.push_back(part);
    begin = end + 1;
  }
  std::ranges::sort(parts, {}, &ProtectedPart::part);
  return parts;
}

std::string to_string(const std::vector<ProtectedPart>& parts) {
  std::string text;
  for (const ProtectedPart& part : parts) {
    text += (text.empty() ? "" : "+") + std::string(kParts.name(part.part));
    if (part.floor.rows > 0 || part.floor.percent < 100) {
      text += "@" + part.floor.to_string();
    }
  }
  return text.empty() ? "none" : text;
}

}  // namespace winnow::policy
