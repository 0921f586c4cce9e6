#include "engine/feed.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/name_table.h"

namespace winnow::engine {
namespace {

constexpr NameTable<std::optional<PrefillOrder>, 3> kPrefillOrders{
    "prefill order",
    {{std::nullopt, "auto"},
     {PrefillOrder::kLayerMajor, "layer-major"},
     {PrefillOrder::kChunkMajor, "chunk-major"}}};

// Feeds share chunks, except where chunks are the occasions of eviction: there a neighbour would change what is kept.
std::vector<Chunk> cut_into_chunks(std::span<const Feed> feeds, PromptEviction eviction,
                                   int n_batch) {
  const bool shares_chunks = !cuts_chunks(eviction);
  std::vector<Chunk> chunks;
  for (const Feed& feed : feeds) {
    size_t fed = 0;
    while (fed < feed.tokens.size()) {
      if (chunks.empty() || chunks.back().n_tokens == n_batch || (fed == 0 && !shares_chunks)) {
        chunks.emplace_back();
      }
      Chunk& chunk = chunks.back();
      const size_t n =
          std::min(feed.tokens.size() - fed, static_cast<size_t>(n_batch - chunk.n_tokens));
      const auto n_before = static_cast<int>(fed);
      chunk.add(*feed.sequence, feed.tokens.subspan(fed, n),
                feed.sequence->positions_fed + n_before, feed.sequence->next_rotation() + n_before,
                /*is_prompt=*/true);
      chunk.slices.back().observer = feed.observer;
      fed += n;
    }
  }
  for (Chunk& chunk : chunks) {
    chunk.pad();
  }
  return chunks;
}

// Why a policy cannot act before attention; empty where it can.
std::string legacy_problem(const policy::Policy& policy) {
  if (policy.is_unlimited()) {
    return "evicts nothing; give a --budget";
  }
  const policy::Needs needs = policy.needs();
  if (needs.n_queries > 0 || needs.column_mass || needs.query_moments ||
      needs.residual_similarity) {
    return "goes by what attention leaves behind (queries, their moments, column mass, changes of "
           "the residual stream), which is not there yet";
  }
  if (needs.replay.is_wanted()) {
    return "has documents replayed, once they are read";
  }
  if (policy.needs_all_layers()) {
    return "compares the rows of all layers, and the later ones are not there yet";
  }
  if (policy.is_contiguous()) {
    return "has contiguous positions, which a mask that is aligned to the end knows nothing of";
  }
  return "";
}

void check_legacy_order(PrefillOrder order, const policy::Policy& policy) {
  if (order == PrefillOrder::kLayerMajor) {
    throw Error(ErrorCode::kInvalidArgument,
                "--legacy-order needs --prefill chunk-major, since every chunk is cut");
  }
  const std::string problem = legacy_problem(policy);
  if (!problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "--legacy-order evicts before attention: policy '" +
                                                 policy.spec() + "' " + problem);
  }
}

}  // namespace

const char* prefill_order_name(PrefillOrder order) {
  return kPrefillOrders.name(order);
}

std::optional<PrefillOrder> parse_prefill_order(std::string_view name) {
  return kPrefillOrders.parse(name);
}

void check_order(PrefillOrder order, PromptEviction eviction, const policy::Policy& policy) {
  if (eviction == PromptEviction::kLegacyOrder) {
    check_legacy_order(order, policy);
    return;
  }
  const bool is_replayed = policy.needs().replay.is_wanted();
  if (eviction == PromptEviction::kPerChunk && is_replayed) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() +
                    "' has documents replayed with the full cache, and --evict per-chunk would cut "
                    "them before (allowed: after-prompt, before-question)");
  }
  if (order != PrefillOrder::kLayerMajor) {
    return;
  }
  if (eviction == PromptEviction::kPerChunk) {
    throw Error(
        ErrorCode::kInvalidArgument,
        "--evict per-chunk needs --prefill chunk-major, since all layers must have seen a chunk");
  }
  if (eviction == PromptEviction::kAfter && policy.needs_all_layers()) {
    throw Error(ErrorCode::kInvalidArgument,
                "policy '" + policy.spec() + "' needs --prefill chunk-major, since it " +
                    (is_replayed ? "has documents replayed with the full cache"
                                 : "compares the rows of all layers"));
  }
}

int padded_rows(int n_tokens) {
  return std::max(n_tokens, kMinPromptRows);
}

void Chunk::add(Sequence& sequence, std::span<const Token> more, int first_pos, int first_rotation,
                bool is_prompt) {
  const auto n = static_cast<int>(more.size());
  slices.push_back(
      {.cache = &sequence.cache,
       .first_token = n_tokens,
       .n_tokens = n,
       .first_pos = first_pos,
       .first_rotation = first_rotation,
       .is_prompt = is_prompt,
       .queries = sequence.queries.shape().n_queries > 0 ? &sequence.queries : nullptr,
       .similarity = is_prompt && !sequence.similarity.is_empty() ? &sequence.similarity : nullptr,
       .moments = sequence.moments.shape().n_heads > 0 ? &sequence.moments : nullptr,
       .mass_decay = sequence.policy.needs().mass_decay,
       .directions = sequence.policy.score_directions(),
       .pages = is_prompt || sequence.pages.is_empty() ? nullptr : &sequence.pages,
       .chunk_attention = sequence.policy.needs().chunk_attention});
  sequences.push_back(&sequence);
  tokens.insert(tokens.end(), more.begin(), more.end());
  for (int i = 0; i < n; ++i) {
    rotations.push_back(first_rotation + i);
  }
  n_tokens += n;
}

void Chunk::rotate(size_t slice, int first_rotation) {
  kernels::Slice& of_sequence = slices[slice];
  of_sequence.first_rotation = first_rotation;
  const auto begin = rotations.begin() + of_sequence.first_token;
  std::iota(begin, begin + of_sequence.n_tokens, first_rotation);
}

void Chunk::pad() {
  tokens.resize(static_cast<size_t>(padded_rows(n_tokens)), 0);
  rotations.resize(tokens.size(), 0);
}

void Chunk::clear() {
  slices.clear();
  sequences.clear();
  tokens.clear();
  rotations.clear();
  n_tokens = 0;
}

PromptFeed::PromptFeed(std::span<const Feed> all_feeds, const FeedOptions& how, int n_batch)
    : feeds(all_feeds),
      options(how),
      chunks(cut_into_chunks(all_feeds, how.eviction, n_batch)),
      wanted_(all_feeds.size()) {}

void PromptFeed::step_done() {
  ++n_done_;
  if (options.progress) {
    options.progress(static_cast<double>(n_done_) / static_cast<double>(n_steps_));
  }
}

void PromptFeed::check_cancel() const {
  if (options.cancel != nullptr && options.cancel->load()) {
    throw Error(ErrorCode::kCancelled, "cancelled while reading the prompt");
  }
}

const Feed& PromptFeed::feed_of(const Sequence& sequence) const {
  return *std::find_if(feeds.begin(), feeds.end(),
                       [&](const Feed& feed) { return feed.sequence == &sequence; });
}

bool PromptFeed::is_end(const kernels::Slice& slice, const Sequence& sequence) const {
  return slice.first_pos + slice.n_tokens ==
         sequence.positions_fed + static_cast<int>(feed_of(sequence).tokens.size());
}

// The last so many tokens of the slice.
int PromptFeed::n_wanted(const kernels::Slice& slice, const Sequence& sequence) const {
  const Feed& feed = feed_of(sequence);
  if (feed.logits == WantedLogits::kAll) {
    return slice.n_tokens;
  }
  return feed.logits == WantedLogits::kLast && is_end(slice, sequence) ? 1 : 0;
}

bool PromptFeed::wants_rows(const Chunk& chunk) const {
  for (size_t i = 0; i < chunk.slices.size(); ++i) {
    if (n_wanted(chunk.slices[i], *chunk.sequences[i]) > 0) {
      return true;
    }
  }
  return false;
}

void PromptFeed::collect(const Chunk& chunk, std::span<const float> residual, int n_embd) {
  for (size_t i = 0; i < chunk.slices.size(); ++i) {
    const kernels::Slice& slice = chunk.slices[i];
    const Feed& feed = feed_of(*chunk.sequences[i]);
    const int n = n_wanted(slice, *chunk.sequences[i]);
    const auto width = static_cast<size_t>(n_embd);
    const int first = slice.first_token + slice.n_tokens - n;
    const auto rows =
        residual.subspan(static_cast<size_t>(first) * width, static_cast<size_t>(n) * width);
    std::vector<float>& to = wanted_[static_cast<size_t>(&feed - feeds.data())];
    to.insert(to.end(), rows.begin(), rows.end());
  }
}

}  // namespace winnow::engine
