// What a session has read and said, beside the rows that are kept of it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/vocabulary.h"
#include "policy/policy.h"

namespace winnow::engine {

// Where a prompt lies, in positions: its pieces follow one another in this order, and some may be empty.
struct ReadPrompt {
  int begin = 0;
  int system_begin = 0;  // of the system message's text
  int system_end = 0;
  int document_begin = 0;
  int document_end = 0;
  int end = 0;
  std::vector<policy::PositionSpan> pins = {};  // that the user wants kept, in any order
  std::vector<roles::Role> roles = {};          // of the document's tokens; empty: unknown
};

int n_document(std::span<const ReadPrompt> prompts);  // tokens that a budget in percent refers to
int n_prompt(std::span<const ReadPrompt> prompts);    // all tokens

// What stays of the prompts: the parts that the policy protects, and all pins. Ascending, none overlap.
std::vector<policy::PositionSpan> protected_spans(std::span<const ReadPrompt> prompts,
                                                  const policy::Policy& policy);

// Of the positions from 0 to the last document's end; what is no document's is PROSE. Empty where no document has any.
std::vector<roles::Role> roles_by_position(std::span<const ReadPrompt> prompts);

struct Transcript {
  std::vector<model::Token> tokens = {};     // fed, [n_positions]
  std::vector<ReadPrompt> prompts = {};      // one after the other; answers lie between them
  std::vector<float> logits = {};            // [n_vocab] of the last position; may be empty
  std::optional<model::Token> pending = {};  // generated, and not fed yet

  int n_document() const { return engine::n_document(prompts); }
  // Whether the last prompt's document has been read and nothing after it, so that a question may follow.
  bool is_turn_open() const;
  // Makes room for so many more tokens.
  void reserve_more(int n);
  // Forgets all from n_positions on.
  void trim(int n_positions);
};

}  // namespace winnow::engine
