// The arms of an evaluation: what every sample is measured under.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policy/policy.h"

namespace winnow::eval {

// What a policy knows of the question when it cuts the document.
enum class QuestionMode {
  kNone,      // nothing is cut, or there is no question
  kAgnostic,  // the document is cut before the question is read
  kAware,     // after it
  kPerChunk,  // after every chunk of the prompt: later chunks see what is left
  // Before the attention of every chunk of the prompt (engine::PromptEviction::kLegacyOrder).
  kLegacyOrder,
};

const char* question_mode_name(QuestionMode mode);
// "agnostic", "aware", "per-chunk", "legacy-order", or "both" for the first two. Throws invalid_argument with the list.
std::vector<QuestionMode> parse_question_modes(std::string_view name);

struct Arm {
  policy::Policy policy;
  QuestionMode question = QuestionMode::kNone;

  bool is_full() const { return policy.is_unlimited(); }
};

// Every spec with every budget, a spec that has its own budget with that; `full` first, and each once. Throws what
// Policy::parse throws, and invalid_argument where a spec needs a budget and there is none.
std::vector<policy::Policy> make_policies(std::span<const std::string> specs,
                                          std::span<const std::string> budgets);

// `full` once, then every other policy in every mode.
std::vector<Arm> make_arms(std::span<const policy::Policy> policies,
                           std::span<const QuestionMode> modes);

// What one prompt must leave behind so that it can be cut to any of these.
policy::Needs needs_of(std::span<const Arm> arms);

}  // namespace winnow::eval
