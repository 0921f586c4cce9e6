// Attention among neighbours: what the rows of a chunk of consecutive positions get of the queries of the same positions,
// each asking all of them, earlier or later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/rows.h"

namespace winnow::kernels {

// Positions are cut into chunks of `length`, and once all tokens of one have been read, each asks all of them.
struct ChunkAttention {
  int length = 0;          // 0: not wanted
  bool is_scaled = false;  // q·k is multiplied with what attention multiplies it with, else with 1

  bool is_wanted() const { return length > 0; }
  bool operator==(const ChunkAttention&) const = default;
};

inline constexpr int kMaxChunkLength = 1024;

// Queries of some tokens of a chunk, of the query heads that share a KV head.
struct ChunkQueries {
  const float* q;       // [n_tokens, n_heads, head_dim]
  size_t token_stride;  // floats from one token to the next
  int n_heads;
  int n_tokens;
};

// Slots [first, last) of the chunk that begins at position `begin`.
struct ChunkSlots {
  int first;
  int last;
};
ChunkSlots chunk_slots(const cache::HeadRows& rows, int begin, int length);

// Adds the softmax weights that the rows in `slots` get of the queries to mass [slots], in units of 1 / kMassScale: each query
// sees the visible ones among these and no others. So sums do not depend on how queries come. `scratch` is aligned to 64 bytes.
void add_chunk_attention(const cache::HeadRows& rows, const ChunkSlots& slots,
                         const ChunkQueries& queries, float scale, float* scratch,
                         std::span<int64_t> mass) noexcept;

// Floats of scratch.
size_t chunk_scratch_floats(int head_dim);

}  // namespace winnow::kernels
