#include "cli/saved_cache.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "cli/policy_flags.h"
#include "cli/run_prompt.h"
#include "cli/run_steps.h"
#include "policy/spec.h"

namespace winnow::cli {
namespace {

void check_same(const std::string& flag, const std::string& given, const std::string& saved) {
  if (given != saved) {
    throw Error(ErrorCode::kInvalidArgument, flag + " is " + given +
                                                 ", but the cache was made with " + saved +
                                                 "; with --cache it need not be given");
  }
}

void check_policy(const RunFlags& flags, const policy::Policy& saved, engine::EvictWhen evict) {
  const std::string budget = budget_text(flags);
  const std::string saved_budget = saved.options().budget.to_string();
  if (!budget.empty()) {
    check_same("the budget", policy::parse_budget(budget).to_string(), saved_budget);
  }
  if (flags.policy.empty()) {
    return;
  }
  // A method without a budget is meant with the one there is.
  const bool takes_saved_budget = budget.empty() && !saved.is_unlimited() &&
                                  !policy::has_option(flags.policy, "budget") &&
                                  policy::parse_spec(flags.policy).method != "full";
  const policy::Policy given =
      make_policy(flags.policy, takes_saved_budget ? saved_budget : budget, {.evict = evict});
  check_same("the policy", given.spec(), saved.spec());
}

std::string template_text(const engine::ChatFormat& chat) {
  if (!chat.has_template) {
    return "none (--no-chat)";
  }
  return chat.chat_template.empty() ? "the model's own" : "'" + chat.chat_template + "'";
}

void check_chat(const RunFlags& flags, const engine::ChatFormat& saved) {
  if (flags.no_chat || flags.has_ids || !flags.chat_template.empty()) {
    check_same("the chat template",
               template_text({.has_template = !flags.no_chat && !flags.has_ids,
                              .chat_template = flags.chat_template}),
               template_text(saved));
  }
}

// A prompt that is given again goes on with the labels that its beginning was read with.
void check_roles(const RunFlags& flags, const engine::PromptTokens& prompt,
                 const engine::SavedSession& saved) {
  if (!saved.policy.needs().roles || saved.transcript.prompts.empty()) {
    return;
  }
  const engine::ReadPrompt& read = saved.transcript.prompts.front();
  const engine::ReadPrompt given = prompt.at(0);
  if (given.document_end == given.document_begin || read.document_end == read.document_begin) {
    return;
  }
  if (given.roles.empty() || read.roles.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + saved.policy.spec() + "' of the cache goes by roles, and " +
                    (given.roles.empty() ? "the prompt that is given again" : "the cache") +
                    " has none");
  }
  const std::vector<model::Token> tokens = prompt.all();
  const auto n_same =
      static_cast<int>(std::ranges::mismatch(tokens, saved.transcript.tokens).in1 - tokens.begin());
  const int end = std::min({n_same, read.document_end, given.document_end});
  for (int i = 0; given.document_begin == read.document_begin && i < end - read.document_begin;
       ++i) {
    const auto token = static_cast<size_t>(i);
    if (given.roles[token] != read.roles[token]) {
      throw Error(ErrorCode::kInvalidArgument,
                  "--roles " + flags.roles + " has token " + std::to_string(i) +
                      " of the document as " + roles::kRoleNames.name(given.roles[token]) +
                      ", and the cache was made with it as " +
                      roles::kRoleNames.name(read.roles[token]) + "; give the --roles of then");
    }
  }
}

}  // namespace

engine::SavedSession load_cache(const RunFlags& flags, const model::Model& model) {
  engine::SavedSession saved = engine::load_session(flags.cache, model);
  check_policy(flags, saved.policy, saved.evict);
  const cache::CacheShape& shape = saved.rows.shape();
  if (flags.has_key_type) {
    check_same("--cache-type-k", flags.key_type, cache::row_type_name(shape.key_type));
  }
  if (flags.has_value_type) {
    check_same("--cache-type-v", flags.value_type, cache::row_type_name(shape.value_type));
  }
  check_chat(flags, saved.chat);
  return saved;
}

engine::NextPrompt next_prompt(const RunFlags& flags, const model::Model& model,
                               const engine::SavedSession& saved) {
  if (flags.has_file || flags.has_ids) {
    engine::NextPrompt next{.tokens = read_prompt(flags, model, saved.chat), .is_whole = true};
    check_roles(flags, next.tokens, saved);
    return next;
  }
  const bool has_document = flags.has_prompt && !saved.transcript.is_turn_open();
  if (flags.has_system) {
    throw Error(ErrorCode::kInvalidArgument,
                "--system comes before the first turn, which the cache has read; with -f the whole "
                "prompt may be given again");
  }
  if (!flags.pins().is_empty() && !has_document) {
    throw Error(ErrorCode::kInvalidArgument,
                "--protect-text and --protect-tokens are about a document, and the cache goes on "
                "without one; compress takes them, too");
  }
  if (flags.has_roles && !has_document) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--roles says what a document's tokens are there for, and the cache goes on without "
        "one; compress takes it, too");
  }
  if (!flags.has_prompt) {
    return {};
  }
  const engine::PromptText text{.document = {},
                                .question = flags.prompt,
                                .has_chat_template = saved.chat.has_template,
                                .chat_template = saved.chat.chat_template,
                                .is_first = false,
                                .pins = flags.pins(),
                                .roles = engine::RoleSource(flags.roles)};
  return {.tokens = saved.transcript.is_turn_open() ? engine::tokenize_question(model, text)
                                                    : engine::tokenize_prompt(model, text)};
}

}  // namespace winnow::cli
