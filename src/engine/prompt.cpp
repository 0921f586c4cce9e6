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

// A special token has no text, and starts a new one.
TextStart start_after(const model::Vocabulary& vocabulary, const std::vector<Token>& tokens) {
  return vocabulary.piece(tokens.back()).empty() ? TextStart::kNew : TextStart::kContinues;
}

// The beginning of a turn, up to the end of its first text.
PromptTokens open_turn(const model::Model& model, bool is_first, const model::RenderedTurn& turn,
                       std::string_view text) {
  const model::Vocabulary& vocabulary = model.vocabulary();
  const TextStart start = is_first ? TextStart::kNew : TextStart::kContinues;
  PromptTokens tokens;
  if (is_first && vocabulary.adds_bos()) {
    tokens.before.push_back(vocabulary.bos());
  }
  append(tokens.before, vocabulary.tokenize(is_first ? turn.before : turn.before_next,
                                            SpecialText::kParse, start));
  tokens.document =
      vocabulary.tokenize(text, SpecialText::kPlain,
                          tokens.before.empty() ? start : start_after(vocabulary, tokens.before));
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
  return static_cast<int>(before.size() + document.size() + question.size() + after.size());
}

std::vector<Token> PromptTokens::all() const {
  std::vector<Token> tokens = before;
  append(tokens, document);
  append(tokens, question);
  append(tokens, after);
  return tokens;
}

PromptTokens PromptTokens::from(int n) const {
  PromptTokens rest = *this;
  auto n_left = static_cast<std::ptrdiff_t>(n);
  for (std::vector<Token>* const piece :
       {&rest.before, &rest.document, &rest.question, &rest.after}) {
    const std::ptrdiff_t n_dropped = std::min(n_left, std::ssize(*piece));
    piece->erase(piece->begin(), piece->begin() + n_dropped);
    n_left -= n_dropped;
  }
  return rest;
}

PromptTokens tokenize_prompt(const model::Model& model, const PromptText& text) {
  check_texts(text);
  const model::RenderedTurn turn = render(model, text);
  PromptTokens tokens =
      open_turn(model, text.is_first, turn,
                text.document ? without_final_newlines(*text.document) : *text.question);
  if (text.document && text.question) {
    tokens.question = question_tokens(model, *text.question);
  }
  tokens.after = after_tokens(model, turn);
  return tokens;
}

PromptTokens tokenize_document(const model::Model& model, const PromptText& text) {
  const std::string document = text.document.value_or("");
  check_text(document, kDocumentName);
  return open_turn(model, text.is_first, render(model, text), without_final_newlines(document));
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
  return open_turn(model, is_first, {}, text);
}

}  // namespace winnow::engine
