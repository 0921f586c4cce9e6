// A user's turn, rendered by a chat template: what stands before and after the user's text.
#pragma once

#include <string>
#include <string_view>

namespace winnow::model {

struct RenderedTurn {
  std::string before;       // up to the first turn's text; special tokens in it are meant
  std::string after;        // from the end of the user's text to the start of the answer
  std::string before_next;  // from the end of an answer to the text of the turn after it
};

// `chat_template` is a template's text (as stored in a GGUF file) or a name libllama knows ("chatml", "llama3", …).
// libllama recognises templates instead of running them, so a default system message of a template is not
// rendered; nor is the beginning-of-text token (Vocabulary::adds_bos says whether to put it). Templates that trim
// the user's text do not do so here. Throws unsupported when libllama does not know the template, naming the ways
// round it (--chat-template NAME, --no-chat).
RenderedTurn render_user_turn(const std::string& chat_template);

// What stands before a first turn's system message, and between it and the user's text; what follows that is as without it.
struct RenderedSystem {
  std::string before;
  std::string after;
};

// Templates without a place of its own for such a message put it before the user's text. Throws like render_user_turn, also
// for a template that leaves the message out.
RenderedSystem render_system(const std::string& chat_template);

}  // namespace winnow::model
