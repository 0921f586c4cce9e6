// Has a model repeat what it has read, so that methods know which rows of a document it needs for that.
//
// Once the document has been read with the full cache, the model is asked to repeat it, and is fed the document a second
// time, as if it were its own answer: part by part, each after a request of its own. What these tokens attend to is noted beside the
// document's rows, and the rows that they leave are taken back.
#pragma once

#include <vector>

#include "model/model.h"

namespace winnow::engine {

struct ChatFormat;
struct PromptTokens;

// The words that ask for it, as tokens.
struct ReplayRequest {
  std::vector<model::Token> first = {};  // for the first part, up to where the answer begins
  // For a later part: before the last tokens of the part before it, which say where to go on, and behind them.
  std::vector<model::Token> next_before = {};
  std::vector<model::Token> next_after = {};
};

// In a user's turn of the chat format, or plain where there is none. is_turn_open: the document's turn goes on; otherwise a new
// one begins.
ReplayRequest replay_request(const model::Model& model, const ChatFormat& format,
                             bool is_turn_open);

// A document that has been read.
struct ReplayText {
  ReplayRequest request = {};
  int document_begin = 0;                   // position of its first token
  std::vector<model::Token> document = {};  // none: there is nothing to replay
};

// Of a prompt whose first token is at `position`, once it has been read.
ReplayText replay_text(const model::Model& model, const ChatFormat& format,
                       const PromptTokens& prompt, int position);

struct ReplayPart {
  int begin;  // positions of the document's rows that are scored
  int end;
  std::vector<model::Token> tokens;  // that are fed: the request, and the same tokens again
};

std::vector<ReplayPart> replay_parts(const ReplayText& text, int chunk);

// Tokens that are fed, and of them the most at a time.
struct ReplaySize {
  int n_tokens = 0;
  int n_most = 0;
  int n_parts = 0;
  int n_most_scored = 0;  // of the document in one part
};
ReplaySize replay_size(const ReplayRequest& request, int n_document, int chunk);

}  // namespace winnow::engine
