#include "eval/on_text.h"

#include "base/hash.h"

namespace winnow::eval {

TextWindow OnText::window_of(const SampleId& sample, int n_tokens, int n_positions) const {
  if (!settings_.allow_beyond_context) {
    engine::check_context(model_.hyper(), n_positions);
  }
  return text_window(texts_, model_.vocabulary(), n_tokens, sample.index, n_windows_);
}

Record OnText::record_on(const TextWindow& window, const SampleId& sample, const Arm& arm) {
  Record record = record_for(sample, arm);
  record.id = window.name + "@" + std::to_string(window.begin);
  record.labels["document"] = window.name;
  record.prompt_hash = content_hash(std::as_bytes(std::span(window.tokens)));
  record.n_prompt = record.n_document = sample.n_tokens;
  return record;
}

}  // namespace winnow::eval
