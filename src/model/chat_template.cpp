#include "model/chat_template.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "llama.h"
#include "model/gguf_file.h"

namespace winnow::model {
namespace {

// Stands for the user's text: no spaces, which templates trim, and nothing that one would change.
constexpr std::string_view kMarker = "WINNOW-USER-TEXT";

std::string known_templates() {
  std::vector<const char*> names(
      static_cast<size_t>(std::max(0, llama_chat_builtin_templates(nullptr, 0))));
  llama_chat_builtin_templates(names.data(), names.size());
  std::string list;
  for (const char* name : names) {
    list += (list.empty() ? "" : ", ") + std::string(name);
  }
  return list;
}

}  // namespace

RenderedTurn render_user_turn(const std::string& chat_template) {
  const std::string content(kMarker);
  const llama_chat_message message = {.role = "user", .content = content.c_str()};
  const auto apply = [&](std::string& rendered) {
    return llama_chat_apply_template(chat_template.c_str(), &message, 1,
                                     /*add_ass=*/true, rendered.data(),
                                     static_cast<int32_t>(rendered.size()));
  };
  std::string rendered;
  const int32_t n_bytes = apply(rendered);  // the length only
  if (n_bytes >= 0) {
    rendered.resize(static_cast<size_t>(n_bytes));
    apply(rendered);
  }
  const size_t marker = rendered.find(kMarker);
  if (marker == std::string::npos) {
    throw Error(ErrorCode::kUnsupported,
                (chat_template.empty() ? "there is no chat template"
                                       : "the chat template " + quoted(chat_template) +
                                             " is not one that libllama knows") +
                    std::string("; name one with --chat-template NAME (") + known_templates() +
                    ") or send the text as it is with --no-chat");
  }
  return {.before = rendered.substr(0, marker), .after = rendered.substr(marker + kMarker.size())};
}

}  // namespace winnow::model
