#include "eval/on_text.h"

#include "base/hash.h"
#include "base/text.h"
#include "engine/admission.h"
#include "policy/filters.h"

namespace winnow::eval {
namespace {

// Of a text's stretches; beyond, it is repeated to fill a length.
constexpr double kLoopedShare = 0.2;

// Of a window's stretches; beyond, filters were calibrated on it.
constexpr double kKnownShare = 0.2;

}  // namespace

TextWindow OnText::window_of(const SampleId& sample, int n_tokens, int n_positions) const {
  if (!settings_.allow_beyond_context) {
    engine::check_context(model_.hyper(), n_positions);
  }
  TextWindow window = text_window(texts_, model_.vocabulary(), n_tokens, sample.index, windows_.n);
  const double share = repeated_share(window.tokens);
  window.is_looped = share > kLoopedShare;
  if (window.is_looped && !windows_.allow_looped) {
    throw Error(ErrorCode::kInvalidArgument,
                rounded_text(100 * share, 0) + " % of the text ('" + window.name + "' from token " +
                    std::to_string(window.begin) +
                    " on) repeats what came before, so that what is measured says little "
                    "(--allow-looped measures it, labelled)");
  }
  return window;
}

void OnText::check_suits(const policy::Policy& policy, const TextWindow& window) const {
  engine::check_suits(policy, model_);
  if (policy.filters() == nullptr) {
    return;
  }
  const double share = policy::shared_stretches(policy::text_stretches(window.tokens),
                                                policy.filters()->text_hashes);
  if (share > kKnownShare) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() + "' has filters that were calibrated on this text: " +
                    rounded_text(100 * share, 0) + " % of '" + window.name + "' from token " +
                    std::to_string(window.begin) +
                    " on is known; what is measured on it says nothing about other texts");
  }
}

Record OnText::record_on(const TextWindow& window, const SampleId& sample, const Arm& arm) {
  Record record = record_for(sample, arm);
  record.id = window.name + "@" + std::to_string(window.begin);
  record.labels["document"] = window.name;
  if (window.is_looped) {
    record.labels["looped"] = "yes";
  }
  record.prompt_hash = content_hash(std::as_bytes(std::span(window.tokens)));
  record.n_prompt = record.n_document = sample.n_tokens;
  return record;
}

}  // namespace winnow::eval
