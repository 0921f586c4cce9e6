#include "engine/prompt.h"

#include "base/error.h"
#include "model/chat_template.h"
#include "model/utf8.h"

namespace winnow::engine {
namespace {

using model::SpecialText;
using model::TextStart;
using model::Token;

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
    check_text(*text.document, "the document (-f)");
  }
  if (text.question) {
    check_text(*text.question, "the prompt (-p)");
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
  return tokens.empty() || vocabulary.piece(tokens.back()).empty() ? TextStart::kNew
                                                                   : TextStart::kContinues;
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

PromptTokens tokenize_prompt(const model::Model& model, const PromptText& text) {
  check_texts(text);
  const std::string document = without_final_newlines(text.document.value_or(""));
  const std::string question = text.question.value_or("");
  const model::Vocabulary& vocabulary = model.vocabulary();
  const model::RenderedTurn turn = render(model, text);
  PromptTokens tokens;
  if (vocabulary.adds_bos()) {
    tokens.before.push_back(vocabulary.bos());
  }
  append(tokens.before, vocabulary.tokenize(turn.before, SpecialText::kParse));
  const TextStart start = start_after(vocabulary, tokens.before);
  if (document.empty()) {
    tokens.document = vocabulary.tokenize(question, SpecialText::kPlain, start);
  } else {
    tokens.document = vocabulary.tokenize(document, SpecialText::kPlain, start);
    if (!question.empty()) {
      tokens.question =
          vocabulary.tokenize("\n\n" + question, SpecialText::kPlain, TextStart::kContinues);
    }
  }
  tokens.after = vocabulary.tokenize(turn.after, SpecialText::kParse, TextStart::kContinues);
  return tokens;
}

}  // namespace winnow::engine
