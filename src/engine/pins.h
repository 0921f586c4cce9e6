// What the user wants kept of a document: text that a regular expression matches, and tokens by number.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/vocabulary.h"
#include "policy/spans.h"

namespace winnow::engine {

// Every token that overlaps a match; each match is a span of its own.
struct TextPin {
  std::string regex;  // RE2's syntax, of UTF-8
  policy::Floor floor = {};
};

// Tokens [begin, end) of the document, as Python slices: without a number from the first or to the last one, below 0 from the
// end.
struct TokenPin {
  std::optional<int> begin;
  std::optional<int> end;
  policy::Floor floor = {};
};

struct DocumentPins {
  std::vector<TextPin> texts = {};
  std::vector<TokenPin> tokens = {};

  bool is_empty() const { return texts.empty() && tokens.empty(); }
};

// "REGEX" or "REGEX@FLOOR". Throws invalid_argument: a regular expression that RE2 refuses, with its reason; an empty one;
// what parse_floor throws.
TextPin parse_text_pin(std::string_view text);

// "a:b" or "a:b@FLOOR". Throws invalid_argument: not of that form, what parse_floor throws.
TokenPin parse_token_pin(std::string_view text);

// All that was given. Throws the same.
DocumentPins parse_pins(std::span<const std::string> texts, std::span<const std::string> tokens);

// The tokens of the document that the pins name, as positions from 0. `tokens` are those that `text` was tokenised to. A
// regular expression that matches nothing is a warning. Throws invalid_argument where a slice reaches beyond the document
// or holds no token, what model::byte_ranges throws, resource_exhausted where matching needs too much memory.
std::vector<policy::PositionSpan> find_pins(const model::Vocabulary& vocabulary,
                                            std::string_view text,
                                            std::span<const model::Token> tokens,
                                            const DocumentPins& pins);

// The same where there are tokens and no text, so `pins.texts` is empty.
std::vector<policy::PositionSpan> find_pins(int n_tokens, std::span<const TokenPin> pins);

}  // namespace winnow::engine
