// The pieces of a prompt are tokenised apart and read as one text.

#include "engine/prompt.h"

#include <gtest/gtest.h>

#include "gguf.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::PromptTokens;
using model::Model;

std::string text_of(const Model& model, const std::vector<model::Token>& tokens) {
  std::string text;
  for (const model::Token token : tokens) {
    text += model.vocabulary().piece(token);
  }
  return text;
}

TEST(Prompt, PutsNoSpaceBetweenThePiecesOfASentencePieceText) {
  const Model model(test::write_tiny_model({.sentencepiece = true}), {});
  const PromptTokens plain = engine::tokenize_prompt(
      model,
      {.document = "the world", .question = "in", .has_chat_template = false, .chat_template = {}});
  EXPECT_EQ(text_of(model, plain.document), " the world");  // the vocabulary's own, before a text
  EXPECT_EQ(text_of(model, plain.question), "\n\nin");
  EXPECT_TRUE(plain.after.empty());

  // vicuna's template is text without special tokens.
  const PromptTokens turn = engine::tokenize_prompt(
      model, {.document = "the world", .question = "in", .chat_template = "vicuna"});
  EXPECT_EQ(text_of(model, turn.all()), " USER: the world\n\nin\nASSISTANT:");
}

TEST(Prompt, StartsAnewAfterASpecialToken) {
  const auto ask_for_bos = [](gguf_context* g) {
    gguf_set_val_bool(g, "tokenizer.ggml.add_bos_token", true);
  };
  const Model model(test::write_tiny_model({.sentencepiece = true, .edit = ask_for_bos}), {});
  const PromptTokens tokens = engine::tokenize_prompt(
      model,
      {.document = "the world", .question = {}, .has_chat_template = false, .chat_template = {}});
  EXPECT_EQ(tokens.before, std::vector{model.vocabulary().bos()});
  EXPECT_EQ(text_of(model, tokens.document), " the world");
}

TEST(Prompt, InTwoIsWhatItIsInOne) {
  const Model model(test::write_tiny_model({.sentencepiece = true}), {});
  for (const bool is_first : {true, false}) {
    const engine::PromptText text{.document = "the world\n",
                                  .question = "in",
                                  .chat_template = "vicuna",
                                  .is_first = is_first};
    const PromptTokens whole = engine::tokenize_prompt(model, text);
    const PromptTokens first = engine::tokenize_document(model, text);
    const PromptTokens second = engine::tokenize_question(model, text);
    EXPECT_EQ(first.all(), whole.up_to_question().all());
    EXPECT_EQ(second.all(), whole.from_question().all());
  }
}

TEST(Prompt, ALaterTurnEndsTheAnswerBeforeIt) {
  const Model model(test::write_tiny_model({.sentencepiece = true}), {});
  const engine::PromptText turn{
      .question = "the world", .chat_template = "vicuna", .is_first = false};
  const PromptTokens tokens = engine::tokenize_prompt(model, turn);
  EXPECT_TRUE(model.vocabulary().ends_generation(tokens.before.front()));
  // After a special token the vocabulary puts a space of its own.
  EXPECT_EQ(text_of(model, tokens.all()), " \nUSER: the world\nASSISTANT:");
  const engine::PromptText text{
      .question = "the world", .has_chat_template = false, .is_first = false};
  EXPECT_EQ(text_of(model, engine::tokenize_prompt(model, text).all()), "the world");
}

}  // namespace
}  // namespace winnow
