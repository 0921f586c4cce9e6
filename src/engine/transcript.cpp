#include "engine/transcript.h"

#include <algorithm>

namespace winnow::engine {

int Transcript::n_document() const {
  int n = 0;
  for (const ReadPrompt& prompt : prompts) {
    n += prompt.document_end - prompt.document_begin;
  }
  return n;
}

int Transcript::n_prompt() const {
  int n = 0;
  for (const ReadPrompt& prompt : prompts) {
    n += prompt.end - prompt.begin;
  }
  return n;
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
