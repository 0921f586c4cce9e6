// The pieces of a prompt are tokenised apart and read as one text.

#include "engine/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "gguf.h"
#include "support/error_of.h"
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

TEST(Prompt, ADocumentHasTheSameRolesWhateverStandsAroundIt) {
  const Model model(test::write_tiny_model(), {});
  engine::PromptText text{.document = R"({"world": "the in", "a": [1, "the"]})",
                          .question = R"({"in": "the world"})",
                          .has_chat_template = false};
  const PromptTokens plain = engine::tokenize_prompt(model, text);
  ASSERT_EQ(plain.roles.size(), plain.document.size());
  for (const roles::Role role : {roles::Role::kKey, roles::Role::kValue, roles::Role::kDelim}) {
    EXPECT_GT(std::ranges::count(plain.roles, role), 0);
  }
  EXPECT_EQ(std::ranges::count(plain.roles, roles::Role::kProse), 0);
  for (const char* chat_template : {"chatml", "vicuna", "llama3"}) {
    text.has_chat_template = true;
    text.chat_template = chat_template;
    const PromptTokens turn = engine::tokenize_prompt(model, text);
    EXPECT_GT(turn.size(), plain.size());
    EXPECT_EQ(turn.document, plain.document);
    EXPECT_EQ(turn.roles, plain.roles) << chat_template;
    const std::vector<engine::ReadPrompt> read = {turn.at(0)};
    const std::vector<roles::Role> by_position = engine::roles_by_position(read);
    ASSERT_EQ(by_position.size(), turn.before.size() + turn.document.size());
    EXPECT_TRUE(std::ranges::equal(std::span(by_position).subspan(turn.before.size()), turn.roles));
    for (size_t i = 0; i < turn.before.size(); ++i) {
      EXPECT_EQ(by_position[i], roles::Role::kProse);
    }
  }
  text.roles = engine::RoleSource("none");
  for (const roles::Role role : engine::tokenize_prompt(model, text).roles) {
    EXPECT_EQ(role, roles::Role::kProse);
  }
  test::error_of(ErrorCode::kInvalidArgument, [] { const engine::RoleSource unknown("jsn"); });
}

TEST(Prompt, ItsRestHasTheRolesOfItsTokens) {
  const Model model(test::write_tiny_model(), {});
  const PromptTokens whole = engine::tokenize_prompt(
      model, {.document = R"({"world": "the in"})", .question = "the", .chat_template = "chatml"});
  for (int n = 0; n <= whole.size(); ++n) {
    const PromptTokens rest = whole.from(n);
    ASSERT_EQ(rest.roles.size(), rest.document.size());
    EXPECT_TRUE(std::ranges::equal(rest.roles, std::span(whole.roles).last(rest.document.size())));
  }
}

}  // namespace
}  // namespace winnow
