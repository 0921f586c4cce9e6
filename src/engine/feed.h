// What a prompt's feed is: whose tokens, in which order they pass the layers, and the chunks they are cut into.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/sequence.h"
#include "kernels/cache_ops.h"
#include "model/vocabulary.h"

namespace winnow::engine {

using model::Token;

// Two loop nests over the same graphs; both give the same bits while nothing is evicted.
enum class PrefillOrder {
  kChunkMajor,  // a chunk of tokens passes all layers, then the next chunk
  kLayerMajor,  // all chunks pass layer 0, layer 0 is evicted, then layer 1, …: the prompt's attention is exact
};

const char* prefill_order_name(PrefillOrder order);
// "chunk-major", "layer-major", or "auto" for none; throws invalid_argument with the list.
std::optional<PrefillOrder> parse_prefill_order(std::string_view name);

// When the rows of a prompt are cut to the budget.
enum class PromptEviction {
  kAfter,     // once the whole prompt has attended
  kPerChunk,  // after every chunk: memory never exceeds budget + chunk, but later chunks see less
  // Before each chunk's own attention, layer by layer, as published programs did by mistake (docs/decisions/faults.md): the
  // chunk attends to what is left, by a causal mask that is aligned to the end of the rows.
  kLegacyOrder,
  kNever,
};

// Whether prompts are cut chunk by chunk.
constexpr bool cuts_chunks(PromptEviction eviction) {
  return eviction == PromptEviction::kPerChunk || eviction == PromptEviction::kLegacyOrder;
}

// Throws invalid_argument for layer-major order where all layers must have seen a chunk, or the prompt, before any is cut,
// for legacy order where the policy evicts nothing, or by what is known after attention only, and for cutting chunks where
// documents are replayed first.
void check_order(PrefillOrder order, PromptEviction eviction, const policy::Policy& policy);

enum class WantedLogits { kNone, kLast, kAll };

struct Feed {
  Sequence* sequence;
  std::span<const Token> tokens;
  WantedLogits logits = WantedLogits::kLast;
  kernels::ActivationObserver* observer = nullptr;  // is shown what attention takes; null: nobody
  // What these tokens have of a document, for policies that have it replayed before rows are cut: not null there.
  const ReplayText* replay = nullptr;
};

struct FeedOptions {
  PrefillOrder order = PrefillOrder::kChunkMajor;
  PromptEviction eviction = PromptEviction::kAfter;
  std::function<void(double)> progress;       // the fraction done, now and then; may be empty
  const std::atomic<bool>* cancel = nullptr;  // checked between graphs
};

// Prompt graphs have at least this many rows, so that every matrix multiply is of one class and a prompt's logits are the
// same bits for any chunk size (docs/decisions/determinism.md).
inline constexpr int kMinPromptRows = 8;

// Whether a graph of so many rows is one of them: it multiplies with the model's prompt weights.
constexpr bool is_prompt_class(int n_rows) {
  return n_rows >= kMinPromptRows;
}

int padded_rows(int n_tokens);

// Tokens that go through a graph at once, of one or several sequences.
struct Chunk {
  void add(Sequence& sequence, std::span<const Token> more, int first_pos, int first_rotation,
           bool is_prompt);
  // Rotates the tokens of a slice to other positions than they were added with.
  void rotate(size_t slice, int first_rotation);
  void pad();  // to padded_rows(n_tokens)
  void clear();

  std::vector<kernels::Slice> slices;
  std::vector<Sequence*> sequences;  // of the slices
  std::vector<Token> tokens;         // [n_tokens] and padding
  std::vector<int32_t> rotations;    // the same: the positions that queries and keys are rotated to
  int n_tokens = 0;                  // without padding
};

// A feed under way.
class PromptFeed {
 public:
  PromptFeed(std::span<const Feed> feeds, const FeedOptions& options, int n_batch);

  const std::span<const Feed> feeds;
  const FeedOptions& options;
  std::vector<Chunk> chunks;

  // Progress in graphs.
  void expect_steps(int64_t n_steps) { n_steps_ = n_steps; }
  void step_done();
  void check_cancel() const;  // throws cancelled

  // Whether a slice holds the last token of its sequence's feed.
  bool is_end(const kernels::Slice& slice, const Sequence& sequence) const;

  // Whether there are rows that logits are wanted of.
  bool wants_rows(const Chunk& chunk) const;
  // Takes the rows that logits are wanted of from a chunk's residual stream after the last layer, [n_tokens, n_embd].
  void collect(const Chunk& chunk, std::span<const float> residual, int n_embd);
  // What was taken for a feed: [n_wanted, n_embd].
  const std::vector<float>& wanted(size_t feed) const { return wanted_[feed]; }

 private:
  int n_wanted(const kernels::Slice& slice, const Sequence& sequence) const;
  const Feed& feed_of(const Sequence& sequence) const;

  std::vector<std::vector<float>> wanted_;
  int64_t n_steps_ = 1;
  int64_t n_done_ = 0;
};

}  // namespace winnow::engine
