// What is fed: a chat turn's pieces as tokens.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/pins.h"
#include "engine/token_roles.h"
#include "engine/transcript.h"
#include "model/model.h"

namespace winnow::engine {

// How a session's prompts are rendered. A session carries it for those who tokenise them.
struct ChatFormat {
  bool has_template = true;
  std::string chat_template = {};  // a name or a template's text; empty: the one in the model file
};

// The turn is document, blank line, question, inside a chat template, behind a system message if there is one. The pieces
// are tokenised apart, so that a document's tokens do not depend on the question (docs/decisions/prompt-pieces.md).
struct PromptText {
  std::optional<std::string> system = {};  // only in a first turn, and only in a template
  std::optional<std::string> document = {};
  std::optional<std::string> question = {};
  bool has_chat_template = true;
  std::string chat_template = {};  // a name or a template's text; empty: the one in the model file
  // Nothing stands before it. A later turn ends the answer before it, and has no beginning-of-text token.
  bool is_first = true;
  DocumentPins pins = {};  // what must stay of the document (where there is none, of the question)
  RoleSource roles = {};   // what the document's tokens are there for
};

struct PromptTokens {
  // The beginning-of-text token, and the template up to the first text.
  std::vector<model::Token> before = {};
  // The system message's text, and the template from there to the user's text.
  std::vector<model::Token> system = {};
  std::vector<model::Token> opening = {};
  // What a budget in percent refers to. The question, where there is no document.
  std::vector<model::Token> document = {};
  // With the blank line before it; empty when there is only one of the two.
  std::vector<model::Token> question = {};
  // The template from the end of the user's text to the start of the answer.
  std::vector<model::Token> after = {};
  // What must stay of the document: tokens from its first one on. Below 0 in the rest of a prompt, for tokens before it.
  std::vector<policy::PositionSpan> pins = {};
  // What the document's tokens are there for, [document.size()]; empty where they have no text, or are not found in it.
  std::vector<roles::Role> roles = {};

  int size() const;
  std::vector<model::Token> all() const;
  // The part that before-question eviction reads first.
  PromptTokens up_to_question() const;
  PromptTokens from_question() const { return {.question = question, .after = after}; }
  // Without the first n tokens.
  PromptTokens from(int n) const;
  // Where the pieces lie when the first token is at a position.
  ReadPrompt at(int position) const;
};

// Throws invalid_argument when neither text is there or one that is there is blank, a system message has no place or pins
// name tokens that are not there; bad_data for text that is not UTF-8; unsupported for a template libllama does not know or
// tokens that cannot be found in the text.
PromptTokens tokenize_prompt(const model::Model& model, const PromptText& text);

// The same turn in two: up to the question, and from it on. Each looks at its own text only, and throws the same.
PromptTokens tokenize_document(const model::Model& model, const PromptText& text);
PromptTokens tokenize_question(const model::Model& model, const PromptText& text);

// Text as it is, without a template; the first of a sequence begins with the beginning-of-text token where the model
// wants one. It counts as a document. Throws invalid_argument for an empty text, bad_data for one that is not UTF-8.
PromptTokens tokenize_text(const model::Model& model, std::string_view text, bool is_first);

}  // namespace winnow::engine
