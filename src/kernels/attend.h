// Attention over the rows of one KV head. Two kernels: one for prompts (many queries at once) and one for
// decoding (one query of every head of the group). Their bits differ, but each keeps these rules:
//
//   * a score depends on q and k alone: one fixed order of fused multiply-adds (one chain for each 32 of
//     the head's elements for prompts, added in order, the canonical dot product of kernels/cpu/rows-inl.h for decoding);
//   * the sum of weights, and each output element, is one chain in position order inside a block
//     (kernels/blocks.h), from the block's own maximum; blocks merge in ascending order;
//   * a weight of exactly 0 contributes nothing, even where the value is not finite.
//
// So no result depends on threads, on how the prompt was cut, on neighbours in the batch, on the width of the
// vectors, or on rows that are not visible.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cache/rows.h"
#include "kernels/key_turns.h"

namespace winnow::kernels {

struct AttendShape {
  int n_heads = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  float scale = 0.0F;  // what q·k is multiplied with

  int gqa_group_size() const { return n_heads / n_kv_heads; }
};

// Column mass is counted in units of 1 / scale: sums of integers are the same in any order, so they do not depend on tiles,
// chunks or threads. A sum over up to 2^24 queries fits at kMassScale; one over up to 2^12, a window's, at the finer
// kWindowMassScale. Weights that are no number count as nothing.
inline constexpr double kMassScale = 0x1p38;
inline constexpr double kWindowMassScale = 0x1p50;

// ---- Prompt kernel ----

// Queries of consecutive tokens, for the query heads that share one KV head. A lane is one (token, head of the
// group), token-major: lane = token * gqa_group_size + head.
struct PromptQueries {
  const float* q;       // token 0's first head of the group; [n_tokens, n_heads, head_dim]
  float* out;           // where its result goes, in the same layout; null: outputs are not wanted
  size_t token_stride;  // floats from one token to the next
  int gqa_group_size;
  int swa_window;  // 0: a query sees the rows at positions up to its own; else only the last so many of them
  int first_pos;   // absolute position of token 0
  int first_lane;  // this tile's lanes
  int n_lanes;     // 1 … prompt_tile_lanes()
  // Column mass: each row's softmax weights, summed over the lanes, are added to mass [rows.n] in units of 1 / mass_scale,
  // each rounded to the nearest. Null: not wanted.
  int64_t* mass = nullptr;
  double mass_scale = kMassScale;
  const KeyTurns* turns = nullptr;  // of the rows' keys; null: they are read as they are
};

// How many lanes one call takes at most. All tokens of a call must have the same block_length().
int prompt_tile_lanes();

// Floats of scratch one thread needs for positions below `n_positions`, heads of at most n_rows rows and, where it adds to
// column mass, of at most n_mass_rows; else that is 0.
size_t prompt_scratch_floats(int head_dim, int n_positions, int n_mass_rows, int n_rows = INT_MAX);

// Each lane attends to the rows that are visible to it. `scratch` is aligned to 64 bytes.
void attend_prompt(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                   float* scratch) noexcept;

// ---- Decode kernel ----

// What one block contributes to each query head of a group: before merging.
// Layout of `partial`: maximum [group], sum [group], output [group, head_dim].
size_t decode_partial_floats(int gqa_group_size, int head_dim);

size_t decode_scratch_floats(int gqa_group_size, int head_dim, int n_positions,
                             int n_rows = INT_MAX);

// Slots [first, last).
struct RowRun {
  int first;
  int last;
};

struct DecodeQuery {
  const float* q;  // [gqa_group_size, head_dim]
  int gqa_group_size;
  int swa_window;  // as in PromptQueries
  int pos;         // absolute position of the token; rows lie at positions up to it
  // Where column mass is wanted: the rows' weights relative to their block's maximum [gqa_group_size, weights_stride].
  float* weights = nullptr;
  size_t weights_stride = 0;        // at least rows.n
  const KeyTurns* turns = nullptr;  // as in PromptQueries
  // The rows that are read, ascending; the others are as if hidden. Empty: all of them.
  std::span<const RowRun> runs = {};
};

// Attends to the rows in `n_blocks` blocks of block_length(query.pos) positions, from `first_block`: one partial after
// the other.
void attend_decode_blocks(const cache::HeadRows& rows, const DecodeQuery& query, int first_block,
                          int n_blocks, float scale, float* scratch, float* partials) noexcept;

// Merges the partials of all blocks, in order, into out [gqa_group_size, head_dim].
void merge_decode_blocks(const float* partials, int n_blocks, int gqa_group_size, int head_dim,
                         float* out) noexcept;

// Adds the softmax weights of the group's queries to mass [rows.n], in units of 1 / kMassScale, from the partials of all
// blocks and query.weights.
void add_decode_mass(const cache::HeadRows& rows, const DecodeQuery& query, const float* partials,
                     int64_t* mass) noexcept;

}  // namespace winnow::kernels
