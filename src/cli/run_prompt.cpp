#include "cli/run_prompt.h"

#include "base/error.h"
#include "base/files.h"
#include "cli/token_ids.h"

namespace winnow::cli {
namespace {

engine::PromptTokens read_ids(const RunFlags& flags, const model::Model& model) {
  if (flags.has_prompt || flags.has_file) {
    throw Error(ErrorCode::kInvalidArgument,
                "--ids takes the place of -p and -f; give one or the other");
  }
  if (flags.no_chat || !flags.chat_template.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "--ids has no chat template, so --no-chat and --chat-template say nothing");
  }
  const engine::DocumentPins pins = flags.pins();
  if (flags.has_system || !pins.texts.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                std::string("--ids has no text, so ") +
                    (flags.has_system ? "--system has no place" : "--protect-text finds nothing") +
                    (flags.has_system ? "" : "; --protect-tokens does"));
  }
  if (flags.has_roles) {
    throw Error(ErrorCode::kInvalidArgument,
                "--ids has no text, so --roles finds nothing to label");
  }
  engine::PromptTokens tokens{.document = parse_token_ids(flags.ids_text(), model.hyper().n_vocab)};
  tokens.pins = engine::find_pins(tokens.size(), pins.tokens);
  return tokens;
}

engine::PromptText prompt_text(const RunFlags& flags, const engine::ChatFormat& chat) {
  engine::PromptText text{.document = std::nullopt,
                          .question = std::nullopt,
                          .has_chat_template = chat.has_template,
                          .chat_template = chat.chat_template,
                          .pins = flags.pins(),
                          .roles = engine::RoleSource(flags.roles)};
  if (flags.has_system) {
    text.system = flags.system;
  }
  if (flags.has_file) {
    text.document = read_text_file(flags.file);
  }
  if (flags.has_prompt) {
    text.question = flags.prompt;
  }
  return text;
}

}  // namespace

engine::PromptTokens read_prompt(const RunFlags& flags, const model::Model& model,
                                 const engine::ChatFormat& chat) {
  return flags.has_ids ? read_ids(flags, model)
                       : engine::tokenize_prompt(model, prompt_text(flags, chat));
}

engine::PromptTokens read_document(const RunFlags& flags, const model::Model& model,
                                   const engine::ChatFormat& chat) {
  if (!flags.has_ids && !flags.has_file) {
    throw Error(ErrorCode::kInvalidArgument, "there is no document; give one (-f) or --ids");
  }
  return flags.has_ids ? read_ids(flags, model)
                       : engine::tokenize_document(model, prompt_text(flags, chat));
}

}  // namespace winnow::cli
