// Samples for tests, counted by a tokenizer that needs no model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "eval/prompt_length.h"
#include "eval/tasks.h"

namespace winnow::eval {

// A word costs a token for each five letters begun, other characters but spaces one each: near what models do.
inline int count_tokens(std::string_view text) {
  int n_tokens = 0;
  int n_letters = 0;
  for (const char c : text) {
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    n_tokens += is_letter ? (n_letters % 5 == 0 ? 1 : 0) : (c == ' ' ? 0 : 1);
    n_letters = is_letter ? n_letters + 1 : 0;
  }
  return n_tokens;
}

inline SampleRequest request_of(int index, int n_tokens, uint64_t seed = 1) {
  return {.index = index,
          .n_tokens = n_tokens,
          .seed = seed,
          .n_template_tokens = 12,
          .count_tokens = count_tokens};
}

inline Sample sample_of(std::string_view spec, int index = 0, int n_tokens = 1000,
                        uint64_t seed = 1) {
  return parse_task(spec).task->make(request_of(index, n_tokens, seed));
}

inline double score_of(std::string_view spec, const Sample& sample, std::string_view answer,
                       int question = 0) {
  return parse_task(spec).task->score(sample, question, answer).primary;
}

// Share of the document's characters before the first of `text`; -1 where it does not stand in it.
inline double depth_in(const Sample& sample, std::string_view text) {
  const size_t at = sample.document.find(text);
  return at == std::string::npos
             ? -1
             : static_cast<double>(at) / static_cast<double>(sample.document.size());
}

}  // namespace winnow::eval
