// The softmax weights that rows received, summed over queries whose sums of weights are known: column mass, and what the last
// queries attend to.
//
// Counted in whole units as kernels/attend.h says, so that no order of sums can be told from another. Weights that are no number
// count as nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attend_decode.h"

namespace winnow::kernels::cuda {

// A KV head with queries of consecutive tokens: as PromptHead. All pointers are to device memory.
struct MassHead {
  const std::byte* keys;
  const int32_t* positions;
  const uint8_t* hidden;
  const float* q;
  const WeightSum* sums;  // [n_tokens, group]
  long long* mass;        // [n]
  int n;
  int n_tokens;
  int first_pos;
  int n_ring;
  float decay;  // what is there is multiplied with it first; 0: it is not read
};

// `group`: query heads beside each other, whose weights go to the same rows. `unit`: what a weight of 1 counts, a power of two.
// most_tokens and most_rows of any of heads [n] decide the launch. Throws unsupported for shapes that have no kernel.
void add_mass(const DecodeShape& shape, int group, double unit, const MassHead* heads, int n,
              int most_tokens, int most_rows, const Stream& stream);

}  // namespace winnow::kernels::cuda
