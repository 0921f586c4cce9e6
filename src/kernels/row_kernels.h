// Arithmetic on the keys or the values of one KV head, for the methods that score them.
//
// A function reads the rows that `slots` names, in that order, and no others: rows that attention does not see are left
// out by not naming them, and the result is what it would be had they been evicted. Results have the same bits on every
// instruction set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "base/scratch.h"
#include "cache/rows.h"

namespace winnow::kernels {

struct RowVectors {
  const std::byte* elements;  // [n, head_dim] of `type`
  cache::RowType type;
  int head_dim;
};

inline RowVectors keys_of(const cache::HeadRows& rows) {
  return {.elements = rows.keys, .type = rows.key_type, .head_dim = rows.head_dim};
}

inline RowVectors values_of(const cache::HeadRows& rows) {
  return {.elements = rows.values, .type = rows.value_type, .head_dim = rows.head_dim};
}

// floats [slots, head_dim] = the rows themselves.
void read_rows(const RowVectors& rows, std::span<const int> slots, std::span<float> floats,
               Scratch& scratch);

// dots[i] = row(slots[i]) · vector, the canonical dot product (kernels/cpu/rows-inl.h). vector [head_dim].
void row_dots(const RowVectors& rows, std::span<const int> slots, std::span<const float> vector,
              std::span<float> dots, Scratch& scratch);

// sum = Σ_i weights[i] · row(slots[i]); a row of weight 0 is not read. sum [head_dim]. Each element is summed in blocks
// of 64 slots, and the blocks in order.
void weighted_sum(const RowVectors& rows, std::span<const int> slots,
                  std::span<const float> weights, std::span<float> sum, Scratch& scratch);

// The least and the greatest element of each channel, NaN left out; low, high [head_dim]. A channel without a number
// gets low = +infinity, high = -infinity.
void channel_bounds(const RowVectors& rows, std::span<const int> slots, std::span<float> low,
                    std::span<float> high, Scratch& scratch);

// deviations[i] = the standard deviation (with head_dim - 1) over the channels c of
// (row(slots[i])[c] - offset[c]) · scale[c]. offset, scale [head_dim].
void channel_deviations(const RowVectors& rows, std::span<const int> slots,
                        std::span<const float> offset, std::span<const float> scale,
                        std::span<float> deviations, Scratch& scratch);

// norms[i] = the squared norm of row(slots[i]), a canonical sum.
void squared_norms(const RowVectors& rows, std::span<const int> slots, std::span<float> norms,
                   Scratch& scratch);

// In place: what vectors of these squared norms are multiplied with to have norm 1; 0 where there is no such number.
void inverse_norms(std::span<float> squared_norms);

inline constexpr int kNoRow = -1;

struct Nearest {
  int index = kNoRow;  // into the candidates
  float cosine = -std::numeric_limits<float>::infinity();
};

// nearest[i] = the candidate j of greatest (row(slots[i]) · slot_scales[i]) · row(candidates[j]) · candidate_scales[j], which
// is the cosine where scales are inverse norms, and of equal ones the first; kNoRow where all are NaN or -infinity. A dot
// product is the chain of fused multiply-adds in ascending order from 0. slot_scales, nearest [slots], candidate_scales
// [candidates]. Compares all with all.
void nearest_rows(const RowVectors& rows, std::span<const int> slots,
                  std::span<const float> slot_scales, std::span<const int> candidates,
                  std::span<const float> candidate_scales, std::span<Nearest> nearest,
                  Scratch& scratch);

// x ↦ Σ_a x_a (linear_a + Σ_{b >= a} upper_ab x_b); linear [head_dim], upper [head_dim, head_dim] with zeros below the
// diagonal.
struct QuadraticForm {
  std::span<const float> linear;
  std::span<const float> upper;
};

// values[i] = form(row(slots[i])). Sums are chains of fused multiply-adds in ascending order: the inner from linear_a on,
// the outer from 0.
void quadratic_form(const RowVectors& rows, std::span<const int> slots, const QuadraticForm& form,
                    std::span<float> values, Scratch& scratch);

// counts[i] = how many of x come before x[i] where the greatest come first, of equal ones those before it. None is NaN.
// Compares all with all.
void count_better(std::span<const float> x, std::span<int32_t> counts);

// In place. NaN stays NaN and has no part in the others.
void softmax(std::span<float> x);

}  // namespace winnow::kernels
