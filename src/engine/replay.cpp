#include "engine/replay.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "engine/prompt.h"

namespace winnow::engine {
namespace {

using model::Token;

constexpr const char* kRequest = "Repeat the previous context exactly.";
constexpr const char* kNextRequest = "Repeat the previous context exactly, starting with:";
// How many of them say where to go on.
constexpr size_t kLastTokens = 8;

void append(std::vector<Token>& tokens, const std::vector<Token>& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
}

// The pieces of a user's turn with such a text: all up to its end, and what the template has from there on.
struct Turn {
  std::vector<Token> text;
  std::vector<Token> after;
};

Turn turn_of(const model::Model& model, const ChatFormat& format, bool is_turn_open,
             const char* question) {
  const model::Vocabulary& vocabulary = model.vocabulary();
  const bool has_template =
      format.has_template && !(format.chat_template.empty() && vocabulary.chat_template().empty());
  const PromptText text{.question = question,
                        .has_chat_template = format.has_template,
                        .chat_template = format.chat_template,
                        .is_first = false};
  if (is_turn_open || !has_template) {
    PromptTokens tokens = tokenize_question(model, text);
    if (!has_template) {  // nothing else says where the answer begins
      tokens.after =
          vocabulary.tokenize("\n\n", model::SpecialText::kPlain, model::TextStart::kContinues);
    }
    return {.text = std::move(tokens.question), .after = std::move(tokens.after)};
  }
  PromptTokens tokens = tokenize_prompt(model, text);
  append(tokens.before, tokens.document);
  return {.text = std::move(tokens.before), .after = std::move(tokens.after)};
}

}  // namespace

ReplayRequest replay_request(const model::Model& model, const ChatFormat& format,
                             bool is_turn_open) {
  Turn first = turn_of(model, format, is_turn_open, kRequest);
  Turn next = turn_of(model, format, is_turn_open, kNextRequest);
  append(first.text, first.after);
  return {.first = std::move(first.text),
          .next_before = std::move(next.text),
          .next_after = std::move(next.after)};
}

ReplayText replay_text(const model::Model& model, const ChatFormat& format,
                       const PromptTokens& prompt, int position) {
  if (prompt.document.empty()) {
    return {};
  }
  const bool is_turn_open = prompt.question.empty() && prompt.after.empty();
  return {.request = replay_request(model, format, is_turn_open),
          .document_begin = prompt.at(position).document_begin,
          .document = prompt.document};
}

std::vector<ReplayPart> replay_parts(const ReplayText& text, int chunk) {
  WINNOW_CHECK(chunk > 0);
  const auto n_document = static_cast<int>(text.document.size());
  std::vector<ReplayPart> parts;
  for (int first = 0; first < n_document; first += chunk) {
    const int last = std::min(first + chunk, n_document);
    const auto token = [&](int i) { return text.document.begin() + i; };
    ReplayPart& part = parts.emplace_back();
    part.begin = text.document_begin + first;
    part.end = text.document_begin + last;
    part.tokens = first == 0 ? text.request.first : text.request.next_before;
    if (first > 0) {
      const int n_last = std::min(first, static_cast<int>(kLastTokens));
      part.tokens.insert(part.tokens.end(), token(first - n_last), token(first));
      append(part.tokens, text.request.next_after);
    }
    part.tokens.insert(part.tokens.end(), token(first), token(last));
  }
  return parts;
}

ReplaySize replay_size(const ReplayRequest& request, int n_document, int chunk) {
  ReplaySize size;
  const ReplayText text{.request = request,
                        .document = std::vector<Token>(static_cast<size_t>(n_document))};
  for (const ReplayPart& part : replay_parts(text, chunk)) {
    const auto n = static_cast<int>(part.tokens.size());
    size.n_tokens += n;
    size.n_most = std::max(size.n_most, n);
    size.n_most_scored = std::max(size.n_most_scored, part.end - part.begin);
    ++size.n_parts;
  }
  return size;
}

}  // namespace winnow::engine
