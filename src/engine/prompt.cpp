#include "engine/prompt.h"

#include <algorithm>

#include "base/error.h"
#include "model/chat_template.h"
#include "model/utf8.h"

namespace winnow::engine {
namespace {

using model::SpecialText;
using model::TextStart;
using model::Token;

constexpr const char* kDocumentName = "the document (-f)";
constexpr const char* kQuestionName = "the prompt (-p)";
constexpr const char* kSystemName = "the system message (--system)";

void append(std::vector<Token>& tokens, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

bool is_blank(const std::string& text) {
  return text.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
}

void check_text(const std::string& text, const std::string& name) {
  if (is_blank(text)) {
    throw Error(ErrorCode::kInvalidArgument, name + " is empty, or nothing but white space");
  }
  if (const std::optional<size_t> offset = model::first_invalid_utf8(text)) {
    throw Error(ErrorCode::kBadData, name + " is not UTF-8: byte " + std::to_string(*offset) +
                                         " of " + std::to_string(text.size()) +
                                         " cannot be part of a character");
  }
}

// An empty document with a question about it is a mistake as well: a file that failed to be made, a variable that is
// not set.
void check_texts(const PromptText& text) {
  if (!text.document && !text.question) {
    throw Error(ErrorCode::kInvalidArgument,
                "there is no prompt; give a question (-p), a document (-f) or both");
  }
  if (text.document) {
    check_text(*text.document, kDocumentName);
  }
  if (text.question) {
    check_text(*text.question, kQuestionName);
  }
}

std::string without_final_newlines(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.pop_back();
  }
  return text;
}

model::RenderedTurn render(const model::Model& model, const PromptText& text) {
  if (!text.has_chat_template) {
    return {};
  }
  const std::string chat_template =
      text.chat_template.empty() ? model.vocabulary().chat_template() : text.chat_template;
  // A base model has no template, and is continued as it is.
  return chat_template.empty() ? model::RenderedTurn{} : model::render_user_turn(chat_template);
}

// Behind tokens, or as `start` says where there are none. A special token has no text, and starts a new one.
TextStart start_after(const model::Vocabulary& vocabulary, const std::vector<Token>& tokens,
                      TextStart start) {
  if (tokens.empty()) {
    return start;
  }
  return vocabulary.piece(tokens.back()).empty() ? TextStart::kNew : TextStart::kContinues;
}

// What the template puts around a system message. Throws where there is none to put it in.
model::RenderedSystem render_system(const model::Model& model, const PromptText& text) {
  if (!text.is_first) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(kSystemName) + " comes before the first turn, and this is a later one");
  }
  const std::string chat_template =
      text.chat_template.empty() ? model.vocabulary().chat_template() : text.chat_template;
  if (!text.has_chat_template || chat_template.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string(kSystemName) + " needs a chat template" +
                    (text.has_chat_template ? ", and the model has none; --chat-template names one"
                                            : "; --no-chat leaves it no place"));
  }
  return model::render_system(chat_template);
}

// None where a vocabulary does not spell the text as it is: a policy that needs roles refuses the prompt then.
std::vector<roles::Role> roles_of(const model::Vocabulary& vocabulary, std::string_view text,
                                  const std::vector<Token>& tokens, const RoleSource& source) {
  try {
    return source.label(vocabulary, text, tokens);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kUnsupported) {
      throw;
    }
    return {};
  }
}

// The beginning of a turn, up to the end of its first text.
PromptTokens open_turn(const model::Model& model, const PromptText& text,
                       const model::RenderedTurn& turn, std::string_view first_text) {
  const model::Vocabulary& vocabulary = model.vocabulary();
  const TextStart start = text.is_first ? TextStart::kNew : TextStart::kContinues;
  PromptTokens tokens;
  if (text.is_first && vocabulary.adds_bos()) {
    tokens.before.push_back(vocabulary.bos());
  }
  const auto render = [&](const std::string& rendered, TextStart at) {
    return vocabulary.tokenize(rendered, SpecialText::kParse, at);
  };
  const std::vector<Token>* last = &tokens.before;
  if (text.system) {
    check_text(*text.system, kSystemName);
    const model::RenderedSystem around = render_system(model, text);
    append(tokens.before, render(around.before, start));
    tokens.system = vocabulary.tokenize(without_final_newlines(*text.system), SpecialText::kPlain,
                                        start_after(vocabulary, tokens.before, start));
    tokens.opening = render(around.after, TextStart::kContinues);
    last = tokens.opening.empty() ? &tokens.system : &tokens.opening;
  } else {
    append(tokens.before, render(text.is_first ? turn.before : turn.before_next, start));
  }
  tokens.document =
      vocabulary.tokenize(first_text, SpecialText::kPlain, start_after(vocabulary, *last, start));
  tokens.pins = find_pins(vocabulary, first_text, tokens.document, text.pins);
  tokens.roles = roles_of(vocabulary, first_text, tokens.document, text.roles);
  return tokens;
}

std::vector<Token> question_tokens(const model::Model& model, const std::string& question) {
  return model.vocabulary().tokenize("\n\n" + question, SpecialText::kPlain, TextStart::kContinues);
}

std::vector<Token> after_tokens(const model::Model& model, const model::RenderedTurn& turn) {
  return model.vocabulary().tokenize(turn.after, SpecialText::kParse, TextStart::kContinues);
}

}  // namespace

int PromptTokens::size() const {
  return static_cast<int>(before.size() + system.size() + opening.size() + document.size() +
                          question.size() + after.size());
}

std::vector<Token> PromptTokens::all() const {
  std::vector<Token> tokens = before;
  for (const std::vector<Token>* const piece : {&system, &opening, &document, &question, &after}) {
    append(tokens, *piece);
  }
  return tokens;
}

PromptTokens PromptTokens::up_to_question() const {
  PromptTokens first = *this;
  first.question.clear();
  first.after.clear();
  return first;
}

PromptTokens PromptTokens::from(int n) const {
  const int n_behind_first = std::max(n - at(0).document_begin, 0);
  PromptTokens rest = *this;
  auto n_left = static_cast<std::ptrdiff_t>(n);
  for (std::vector<Token>* const piece :
       {&rest.before, &rest.system, &rest.opening, &rest.document, &rest.question, &rest.after}) {
    const std::ptrdiff_t n_dropped = std::min(n_left, std::ssize(*piece));
    piece->erase(piece->begin(), piece->begin() + n_dropped);
    n_left -= n_dropped;
  }
  if (!rest.roles.empty()) {
    rest.roles.erase(
        rest.roles.begin(),
        rest.roles.begin() + static_cast<std::ptrdiff_t>(document.size() - rest.document.size()));
  }
  for (policy::PositionSpan& pin : rest.pins) {
    pin.begin -= n_behind_first;
    pin.end -= n_behind_first;
  }
  return rest;
}

ReadPrompt PromptTokens::at(int position) const {
  WINNOW_CHECK(roles.empty() || roles.size() == document.size());
  ReadPrompt prompt{.begin = position};
  prompt.system_begin = position + static_cast<int>(before.size());
  prompt.system_end = prompt.system_begin + static_cast<int>(system.size());
  prompt.document_begin = prompt.system_end + static_cast<int>(opening.size());
  prompt.document_end = prompt.document_begin + static_cast<int>(document.size());
  prompt.end = position + size();
  prompt.roles = roles;
  for (const policy::PositionSpan& pin : pins) {
    prompt.pins.push_back(
        {prompt.document_begin + pin.begin, prompt.document_begin + pin.end, pin.n_least});
  }
  return prompt;
}

PromptTokens tokenize_prompt(const model::Model& model, const PromptText& text) {
  check_texts(text);
  const model::RenderedTurn turn = render(model, text);
  PromptTokens tokens = open_turn(
      model, text, turn, text.document ? without_final_newlines(*text.document) : *text.question);
  if (text.document && text.question) {
    tokens.question = question_tokens(model, *text.question);
  }
  tokens.after = after_tokens(model, turn);
  return tokens;
}

PromptTokens tokenize_document(const model::Model& model, const PromptText& text) {
  const std::string document = text.document.value_or("");
  check_text(document, kDocumentName);
  return open_turn(model, text, render(model, text), without_final_newlines(document));
}

PromptTokens tokenize_question(const model::Model& model, const PromptText& text) {
  const std::string question = text.question.value_or("");
  check_text(question, kQuestionName);
  return {.question = question_tokens(model, question),
          .after = after_tokens(model, render(model, text))};
}

PromptTokens tokenize_text(const model::Model& model, std::string_view text, bool is_first) {
  if (text.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "the text is empty");
  }
  return open_turn(model, {.is_first = is_first}, {}, text);
}

}  // namespace winnow::engine
