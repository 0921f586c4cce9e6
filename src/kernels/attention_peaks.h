// The greatest attention that any of many queries pays to each row: what a replay is scored by.
#pragma once

#include <cstddef>
#include <span>

#include "cache/rows.h"
#include "kernels/attend.h"

namespace winnow::kernels {

// peaks[i] = the greatest softmax weight that row first_slot + i gets of any lane, where that is above what it was. Each lane's
// softmax is over all rows that it sees; its sum is one chain in order of position. A weight that is no number counts as
// nothing. `factors` [n_tokens] multiply the weights that a token's lanes pay; null: 1. `queries` as for attend_prompt(), without outputs, mass, turns and windows, but its tokens may be of several block
// lengths. `scratch` is aligned to 64 bytes. The same bits on every instruction set.
void raise_attention_peaks(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                           const float* factors, int first_slot, std::span<float> peaks,
                           float* scratch) noexcept;

// Floats of scratch for heads of at most n_rows rows.
size_t peaks_scratch_floats(int head_dim, int n_rows);

}  // namespace winnow::kernels
