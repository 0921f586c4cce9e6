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

namespace {

// Where a part of prompt i lies.
policy::PositionSpan span_of(policy::PromptPart part, std::span<const ReadPrompt> prompts,
                             size_t i) {
  const ReadPrompt& prompt = prompts[i];
  switch (part) {
    case policy::PromptPart::kSystem:
      return {prompt.system_begin, prompt.system_end};
    case policy::PromptPart::kTemplate:
      return {prompt.begin, prompt.document_begin};
    case policy::PromptPart::kUser:
      return {prompt.document_begin, prompt.end};
    case policy::PromptPart::kQuestion:
      return {prompt.document_end, prompt.end};
    case policy::PromptPart::kAssistant:
      break;
  }
  return {i == 0 ? prompt.begin : prompts[i - 1].end, prompt.begin};  // the answer before it
}

}  // namespace

std::vector<policy::PositionSpan> protected_spans(std::span<const ReadPrompt> prompts,
                                                  const policy::Policy& policy) {
  std::vector<policy::PositionSpan> spans;
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const policy::ProtectedPart& part : policy.options().protect) {
      policy::PositionSpan span = span_of(part.part, prompts, i);
      span.n_least = part.floor.of(span.end - span.begin);
      spans.push_back(span);
    }
    spans.insert(spans.end(), prompts[i].pins.begin(), prompts[i].pins.end());
  }
  return policy::disjoint(std::move(spans));
}

std::vector<roles::Role> roles_by_position(std::span<const ReadPrompt> prompts) {
  std::vector<roles::Role> roles;
  for (const ReadPrompt& prompt : prompts) {
    if (!prompt.roles.empty()) {
      roles.resize(static_cast<size_t>(prompt.document_begin), roles::Role::kProse);
      roles.insert(roles.end(), prompt.roles.begin(), prompt.roles.end());
    }
  }
  return roles;
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
    for (int* const border : {&last.system_begin, &last.system_end, &last.document_begin,
                              &last.document_end, &last.end}) {
      *border = std::min(*border, n_positions);
    }
  }
  for (ReadPrompt& prompt : prompts) {
    const int n_document = prompt.document_end - prompt.document_begin;
    prompt.roles.resize(std::min(prompt.roles.size(), static_cast<size_t>(n_document)));
    std::erase_if(prompt.pins,
                  [&](const policy::PositionSpan& pin) { return pin.begin >= n_positions; });
    for (policy::PositionSpan& pin : prompt.pins) {
      pin.end = std::min(pin.end, n_positions);
    }
  }
}

}  // namespace winnow::engine
