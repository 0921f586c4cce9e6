// Attention of a prompt's tokens over heads of different lengths.
//
// The rules are those of kernels/attend.h, with an order of its own for sums: positions are cut into tiles of 64 from 0 on, in which
// a row has the place that its position says. A tile's scores and sums come from tensor cores, from the highest score so far of
// each query. So what is evicted and what is hidden give the same bits, and no result depends on how the prompt was cut, on
// neighbours, or on other heads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attend_decode.h"
#include "kernels/device_step.h"

namespace winnow::kernels::cuda {

// A KV head with the tokens of one sequence; all pointers are to device memory, aligned to 16 bytes but for `hidden`.
struct PromptHead {
  const std::byte* keys;     // [n, head_dim]
  const std::byte* values;   // [n, head_dim]
  const int32_t* positions;  // [n], ascending; the tokens' own rows are among them
  const uint8_t* hidden;     // [n] cache::Visibility, or null when all are visible
  const unsigned long long* n_nonfinite_values;  // of all that were appended
  const float* q;  // token 0's first head of the group; [n_tokens, n_heads, head_dim]
  float* out;      // where its result goes, in the same layout
  int n;
  int n_tokens;
  int first_pos;   // of token 0
  int swa_window;  // 0: all rows up to a token's own are seen; else the last so many positions
  // Where what weights sum up to is wanted: of each lane, [n_tokens, group].
  WeightSum* sums = nullptr;
  int n_ring = 0;  // more than 0: token i is at (first_pos + i) mod n_ring of q, not at i
};

// `n_heads`: of the model's layer; most_tokens of any of the n_kv_heads [n] decides the launch. Throws unsupported for shapes that
// have no kernel.
void attend_prompt(const DecodeShape& shape, const PromptHead* heads, int n, int most_tokens,
                   const Stream& stream);

// Of single query heads, `sums` alone. On the way they take [n_parts, n_tokens], of parts of kSumsPart positions from 0 on.
void sum_weights(const DecodeShape& shape, const PromptHead* heads, int n, int most_tokens,
                 int n_parts, const Stream& stream);

}  // namespace winnow::kernels::cuda
