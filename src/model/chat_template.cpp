#include "model/chat_template.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "llama.h"
#include "model/gguf_file.h"

namespace winnow::model {
namespace {

// Stands for a message's text: no spaces, which templates trim, and nothing that one would change.
constexpr std::string_view kMarker = "WINNOW-MESSAGE-TEXT";

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

// The messages as the template renders them; empty when libllama does not know it.
std::string render(const std::string& chat_template,
                   const std::vector<llama_chat_message>& messages) {
  const auto apply = [&](std::string& rendered) {
    return llama_chat_apply_template(chat_template.c_str(), messages.data(), messages.size(),
                                     /*add_ass=*/true, rendered.data(),
                                     static_cast<int32_t>(rendered.size()));
  };
  std::string rendered;
  const int32_t n_bytes = apply(rendered);  // the length only
  if (n_bytes >= 0) {
    rendered.resize(static_cast<size_t>(n_bytes));
    apply(rendered);
  }
  return rendered;
}

// What the template puts around the texts of the messages: [n_messages + 1]; empty when some text is not to be found.
std::vector<std::string> render_around(const std::string& chat_template,
                                       const std::vector<const char*>& roles) {
  std::vector<llama_chat_message> messages;
  messages.reserve(roles.size());
  for (const char* const role : roles) {
    messages.push_back({.role = role, .content = kMarker.data()});
  }
  const std::string rendered = render(chat_template, messages);
  std::vector<std::string> around;
  size_t begin = 0;
  for (size_t i = 0; i < roles.size(); ++i) {
    const size_t marker = rendered.find(kMarker, begin);
    if (marker == std::string::npos) {
      return {};
    }
    around.push_back(rendered.substr(begin, marker - begin));
    begin = marker + kMarker.size();
  }
  around.push_back(rendered.substr(begin));
  return around;
}

}  // namespace

RenderedTurn render_user_turn(const std::string& chat_template) {
  const std::vector<std::string> first = render_around(chat_template, {"user"});
  const std::vector<std::string> next = render_around(chat_template, {"user", "assistant", "user"});
  if (first.empty() || next.empty()) {
    throw Error(ErrorCode::kUnsupported,
                (chat_template.empty() ? "there is no chat template"
                                       : "the chat template " + quoted(chat_template) +
                                             " is not one that libllama knows") +
                    std::string("; name one with --chat-template NAME (") + known_templates() +
                    ") or send the text as it is with --no-chat");
  }
  return {.before = first[0], .after = first[1], .before_next = next[2]};
}

RenderedSystem render_system(const std::string& chat_template) {
  const std::vector<std::string> around = render_around(chat_template, {"system", "user"});
  if (around.empty()) {
    throw Error(ErrorCode::kUnsupported, "the chat template " + quoted(chat_template) +
                                             " has no place for a system message that libllama "
                                             "knows; name one with --chat-template NAME (" +
                                             known_templates() + ")");
  }
  return {.before = around[0], .after = around[1]};
}

}  // namespace winnow::model
