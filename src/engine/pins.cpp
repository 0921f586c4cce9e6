#include "engine/pins.h"

#include <re2/re2.h>

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "model/token_bytes.h"

namespace winnow::engine {
namespace {

using policy::PositionSpan;

constexpr const char* kTextFlag = "--protect-text ";
constexpr const char* kTokensFlag = "--protect-tokens ";
constexpr int64_t kRegexBytes = int64_t{64} << 20;  // of automata; more and RE2 refuses or is slow

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument, what);
}

RE2::Options regex_options() {
  RE2::Options options;
  options.set_log_errors(false);
  options.set_max_mem(kRegexBytes);
  return options;
}

std::string spelled(const TokenPin& pin) {
  const auto number = [](const std::optional<int>& n) { return n ? std::to_string(*n) : ""; };
  return number(pin.begin) + ":" + number(pin.end);
}

std::optional<int> parse_border(std::string_view text, std::string_view given) {
  if (text.empty()) {
    return std::nullopt;
  }
  int border = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), border);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    refuse(kTokensFlag + std::string(given) + ": '" + std::string(text) +
           "' is not a whole number (allowed: a:b, a: and :b, below 0 from the document's end)");
  }
  return border;
}

// A border as a number of tokens from the document's beginning.
int resolve(int border, int n_tokens, const TokenPin& pin) {
  if (border < -n_tokens || border > n_tokens) {
    refuse(kTokensFlag + spelled(pin) + ": " + std::to_string(border) + " is beyond the " +
           std::to_string(n_tokens) + " tokens of the document (allowed: " +
           std::to_string(-n_tokens) + " to " + std::to_string(n_tokens) + ")");
  }
  return border < 0 ? border + n_tokens : border;
}

PositionSpan span_of(const TokenPin& pin, int n_tokens) {
  const int begin = resolve(pin.begin.value_or(0), n_tokens, pin);
  const int end = resolve(pin.end.value_or(n_tokens), n_tokens, pin);
  if (begin >= end) {
    refuse(kTokensFlag + spelled(pin) + " holds no token: from " + std::to_string(begin) + " to " +
           std::to_string(end) + " of the document's " + std::to_string(n_tokens));
  }
  return {begin, end, pin.floor.of(end - begin)};
}

// Byte ranges of the matches that are not empty, ascending.
std::vector<model::ByteRange> find_matches(const TextPin& pin, std::string_view text) {
  const RE2 regex(pin.regex, regex_options());
  WINNOW_CHECK(regex.ok());
  std::vector<model::ByteRange> matches;
  const re2::StringPiece whole(text.data(), text.size());
  re2::StringPiece match;
  for (size_t from = 0; from < text.size() && regex.Match(whole, from, text.size(), RE2::UNANCHORED,
                                                          &match, /*nsubmatch=*/1);) {
    const auto begin = static_cast<size_t>(match.data() - text.data());
    from = begin + match.size();
    if (match.empty()) {  // the next one begins behind this character
      do {
        ++from;
      } while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0U) == 0x80U);
    } else {
      matches.push_back({begin, from});
    }
  }
  return matches;
}

// The spans of tokens that overlap the matches.
void add_spans(const std::vector<model::ByteRange>& matches,
               const std::vector<model::ByteRange>& tokens, const policy::Floor& floor,
               std::vector<PositionSpan>& spans) {
  for (const model::ByteRange& match : matches) {
    const auto first = std::ranges::upper_bound(tokens, match.begin, {}, &model::ByteRange::end);
    const auto last = std::ranges::lower_bound(tokens, match.end, {}, &model::ByteRange::begin);
    if (first < last) {
      const auto n = static_cast<int>(last - first);
      const auto begin = static_cast<int>(first - tokens.begin());
      spans.push_back({begin, begin + n, floor.of(n)});
    }
  }
}

}  // namespace

TextPin parse_text_pin(std::string_view text) {
  policy::FlooredText given;
  try {
    given = policy::split_floor(text);
  } catch (const Error& error) {
    refuse(kTextFlag + std::string(text) + ": " + error.what() +
           "; a regular expression that ends so is written with [@]");
  }
  if (given.text.empty()) {
    refuse(kTextFlag + std::string(text) + ": the regular expression is empty");
  }
  const RE2 regex(re2::StringPiece(given.text.data(), given.text.size()), regex_options());
  if (!regex.ok()) {
    refuse(kTextFlag + std::string(text) + ": not a regular expression of RE2: " + regex.error());
  }
  return {std::string(given.text), given.floor};
}

TokenPin parse_token_pin(std::string_view text) {
  policy::FlooredText given;
  try {
    given = policy::split_floor(trim(text));
  } catch (const Error& error) {
    refuse(kTokensFlag + std::string(text) + ": " + error.what());
  }
  const size_t colon = given.text.find(':');
  if (colon == std::string_view::npos) {
    refuse(kTokensFlag + std::string(text) +
           " is not of the form a:b (allowed: a:b, a: and :b, below 0 from the document's end)");
  }
  return {parse_border(given.text.substr(0, colon), text),
          parse_border(given.text.substr(colon + 1), text), given.floor};
}

std::vector<PositionSpan> find_pins(const model::Vocabulary& vocabulary, std::string_view text,
                                    std::span<const model::Token> tokens,
                                    const DocumentPins& pins) {
  std::vector<PositionSpan> spans = find_pins(static_cast<int>(tokens.size()), pins.tokens);
  if (pins.texts.empty()) {
    return spans;
  }
  const std::vector<model::ByteRange> ranges = model::byte_ranges(vocabulary, text, tokens);
  for (const TextPin& pin : pins.texts) {
    const std::vector<model::ByteRange> matches = find_matches(pin, text);
    if (matches.empty()) {
      log_warning(kTextFlag + pin.regex + " matches nothing in the document");
    }
    add_spans(matches, ranges, pin.floor, spans);
  }
  return spans;
}

std::vector<PositionSpan> find_pins(int n_tokens, std::span<const TokenPin> pins) {
  std::vector<PositionSpan> spans;
  for (const TokenPin& pin : pins) {
    spans.push_back(span_of(pin, n_tokens));
  }
  return spans;
}

DocumentPins parse_pins(std::span<const std::string> texts, std::span<const std::string> tokens) {
  DocumentPins pins;
  for (const std::string& text : texts) {
    pins.texts.push_back(parse_text_pin(text));
  }
  for (const std::string& range : tokens) {
    pins.tokens.push_back(parse_token_pin(range));
  }
  return pins;
}

}  // namespace winnow::engine
