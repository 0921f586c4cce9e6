// The softmax weights that rows received, summed over queries whose sums of weights are known: column mass, and what the last
// queries attend to.
//
// Column mass is counted in whole units of 1 / kMassScale (kernels/attend.h), so that no order of sums can be told from another. A
// window's weights are added up in floats, in the order of its queries alone, and are then units of 1 / kWindowMassScale. Weights
// that are no number count as nothing.
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
  const WeightSum*
      sums;         // [n_tokens, group], or of a window [group], sums_stride apart, of [n_tokens]
  long long* mass;  // [n], or of a window [group], mass_stride apart, of [n]
  int n;
  int n_tokens;
  int first_pos;
  int n_ring;
  float decay;  // what is there is multiplied with it first; 0: it is not read
};

// What add_mass() and sum_window() take beside the heads: most_tokens and most_rows of any of heads [n] decide the launch. `images`:
// scratch of mass_image_bytes() for as many heads and tokens, which another launch may use once this one is over.
struct MassLaunch {
  const MassHead* heads;
  int n;
  int most_tokens;
  int most_rows;
  std::byte* images;
};

// Bytes, a multiple of 1024, in which queries of n KV heads are laid out for tensor cores; a window's where is_window.
size_t mass_image_bytes(const DecodeShape& shape, int n, int most_tokens, bool is_window);

// Adds the weights of all query heads of a group. Throws unsupported for shapes that have no kernel.
void add_mass(const DecodeShape& shape, const MassLaunch& launch, const Stream& stream);

// Writes the weights of each query head of a group by itself, over at most 4096 queries. The same errors.
void sum_window(const DecodeShape& shape, const MassLaunch& launch, size_t sums_stride,
                size_t mass_stride, const Stream& stream);

}  // namespace winnow::kernels::cuda
