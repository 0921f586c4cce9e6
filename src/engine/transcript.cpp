#include "engine/transcript.h"

#include <algorithm>

namespace winnow::engine {

int n_document(std::span<const ReadPrompt> prompts) {
  int n = 0;
  for (const ReadPrompt& prompt : prompts) {
    n += prompt.document_end - prompt.document_begin;
  }
  return n;
}

int n_prompt(std::span<const ReadPrompt> prompts) {
  int n = 0;
  for (const ReadPrompt& prompt : prompts) {
    n += prompt.end - prompt.begin;
  }
  return n;
}

std::vector<policy::PositionSpan> protected_spans(std::span<const ReadPrompt> prompts,
                                                  const policy::Policy& policy) {
  std::vector<policy::PositionSpan> spans;
  const auto add = [&spans](bool is_protected, int begin, int end) {
    if (is_protected && begin < end) {
      spans.push_back({begin, end});
    }
  };
  for (const ReadPrompt& prompt : prompts) {
    add(policy.protects_template(), prompt.begin, prompt.document_begin);
    add(policy.protects_question(), prompt.document_end, prompt.end);
  }
  return spans;
}

bool Transcript::is_turn_open() const {
  return !prompts.empty() && !pending && std::ssize(tokens) == prompts.back().document_end;
}

void Transcript::reserve_more(int n) {
  const size_t n_needed = tokens.size() + static_cast<size_t>(std::max(n, 0));
  if (n_needed > tokens.capacity()) {  // at least doubled, however often it is asked for a little
    tokens.reserve(std::max(n_needed, 2 * tokens.capacity()));
  }
}

void Transcript::trim(int n_positions) {
  pending.reset();
  if (n_positions < std::ssize(tokens)) {
    logits.clear();
    tokens.resize(static_cast<size_t>(n_positions));
  }
  std::erase_if(prompts, [&](const ReadPrompt& prompt) { return prompt.begin >= n_positions; });
  if (!prompts.empty()) {
    ReadPrompt& last = prompts.back();
    last.document_begin = std::min(last.document_begin, n_positions);
    last.document_end = std::min(last.document_end, n_positions);
    last.end = std::min(last.end, n_positions);
  }
}

}  // namespace winnow::engine
