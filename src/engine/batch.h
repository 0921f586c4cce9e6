// Sequences that are read and decoded together, joining and leaving at any step: continuous batching.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "engine/feed.h"
#include "engine/sequence.h"

namespace winnow::engine {

struct BatchLimits {
  int n_sequences = 8;  // most sequences at a time
  int n_tokens = 512;   // most tokens in one step, at least one for each sequence
};

// A sequence's life in a batch: its prompt is read, over as many steps as it takes; the step that reads its last token
// gives logits; from then on every push() of a token is decoded by the next step, which gives the next logits. A
// sequence that was fed before may join without a prompt.
//
// Neighbours change neither what a sequence keeps nor its logits while matrix multiplies stay in one class: steps
// without prompt tokens are as wide as sequences take part, all others in the prompt's class
// (docs/decisions/determinism.md). Refusals throw invalid_argument and change nothing. Sequences must stay where they
// are, and be fed by the batch alone, until they are removed.
class Batch {
 public:
  // Limits beyond the engine's n_batch are refused, since its graphs are planned for that.
  Batch(Engine& engine, const BatchLimits& limits);

  // A sequence joins with the tokens to read after what it has. Prompts are read in the order of joining. With
  // kPerChunk it is cut after every n_batch tokens of its prompt, whatever steps they came in. Refused: a sequence that
  // is there already or not usable, one more than n_sequences, no room in its cache, a token beyond the vocabulary, a
  // policy that has documents replayed.
  void add(Sequence& sequence, std::span<const Token> prompt = {},
           PromptEviction eviction = PromptEviction::kAfter);

  // The token to decode next. Refused: a sequence that is not in the batch, is still reading or has a token already; no
  // room in its cache; a token beyond the vocabulary.
  void push(Sequence& sequence, Token token);

  // A sequence leaves, at any time: with the rows of the tokens that steps have read, and usable, unless a step failed.
  // Refused where it is not in the batch.
  void remove(const Sequence& sequence);

  bool contains(const Sequence& sequence) const;
  int n_sequences() const { return static_cast<int>(members_.size()); }
  // Whether a step would read or decode anything.
  bool has_work() const;

  struct NextLogits {
    Sequence* sequence;
    std::span<const float> logits;  // [n_vocab]
  };
  // Decodes every token that was pushed, and reads as many prompt tokens as n_tokens leaves room for; then evicts as
  // each policy says. Returns the logits of those sequences that can choose a token now, in the order of joining, valid
  // until the next step; nothing where there is no work. Throws like Engine::step; the sequences of a step that failed
  // half-way are unusable and have to be removed, others are unharmed.
  std::span<const NextLogits> step();

 private:
  struct Member {
    Sequence* sequence;
    std::vector<Token> prompt;
    PromptEviction eviction;
    int n_read = 0;             // tokens of the prompt
    int positions_fed;          // as this batch left the sequence
    std::optional<Token> next;  // pushed, to be decoded

    int n_unread() const { return static_cast<int>(prompt.size()) - n_read; }
  };

  Member* find(const Sequence& sequence);
  StepInput prompt_piece(const Member& member, int n_most) const;

  Engine& engine_;
  BatchLimits limits_;
  std::vector<Member> members_;  // in the order of joining
  std::vector<float> logits_;    // [n_next, n_vocab]
  std::vector<NextLogits> next_;
};

}  // namespace winnow::engine
