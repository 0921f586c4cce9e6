// The decode kernel: one query of each head of a group against the rows of one block of positions.
//
// A row is brought to floats once for all query heads of its group. Scores run along the row (the canonical dot
// product), outputs are one chain per element down the rows.

#include <algorithm>
#include <limits>

#include "kernels/attend.h"
#include "kernels/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend_decode.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Output accumulators: kHeads x kVectors must leave registers for a row.
inline constexpr size_t kMaxHeads = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 4 : 3;
inline constexpr size_t kOutputVectors = 4;

// Where a thread's scratch is cut.
struct DecodeScratch {
  float* q;         // [group, padded_dim] queries, padded
  float* rows;      // [kTileRows, padded_dim] keys or values
  float* eighths;   // [group, 8, 8] partial dot products of eight rows
  float* output;    // [group, padded_dim]
  float* weights;   // [group, block rows]
  size_t capacity;  // block rows
};

size_t decode_scratch_floats_impl(int group, int head_dim, int n_positions) {
  const size_t dim = padded_dim(head_dim);
  const size_t heads = static_cast<size_t>(group);
  return 2 * heads * dim + kTileRows * dim + heads * 64 + heads * block_capacity(n_positions);
}

HWY_INLINE DecodeScratch cut_decode_scratch(float* memory, int group, int head_dim, int pos) {
  const size_t dim = padded_dim(head_dim);
  const size_t heads = static_cast<size_t>(group);
  DecodeScratch cut{};
  cut.q = memory;
  cut.output = cut.q + heads * dim;
  cut.rows = cut.output + heads * dim;
  cut.eighths = cut.rows + kTileRows * dim;
  cut.weights = cut.eighths + heads * 64;
  cut.capacity = block_capacity(pos + 1);
  return cut;
}

// weights[head][row] = q[head] · keys[row] * scale for the rows [first, last), hidden ones minus infinity.
HWY_INLINE void score_rows(const cache::HeadRows& rows, int first, int last, size_t group,
                           float scale, const DecodeScratch& scratch) {
  const size_t dim = padded_dim(rows.head_dim);
  const size_t key_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.key_type);
  for (int start = first; start < last; start += kTileRows) {
    const int n = std::min(kTileRows, last - start);
    load_rows(rows.key_type, rows.keys + static_cast<size_t>(start) * key_bytes, n, rows.head_dim,
              scratch.rows);
    for (int eight = 0; eight < n; eight += 8) {
      for (size_t r = 0; r < 8; ++r) {
        const float* const key = scratch.rows + (static_cast<size_t>(eight) + r) * dim;
        for (size_t head = 0; head < group; ++head) {
          dot_eighths<kLanes>(key, scratch.q + head * dim, dim,
                              scratch.eighths + head * 64 + r * 8);
        }
      }
      for (size_t head = 0; head < group; ++head) {
        sum_eighths_of_8(scratch.eighths + head * 64,
                         scratch.weights + head * scratch.capacity + (start - first + eight));
      }
    }
  }
  for (size_t head = 0; head < group; ++head) {
    float* const scores = scratch.weights + head * scratch.capacity;
    for (int i = 0; i < last - first; ++i) {
      const bool is_hidden = rows.hidden != nullptr && rows.hidden[first + i] != 0;
      scores[i] = is_hidden ? -std::numeric_limits<float>::infinity() : scores[i] * scale;
    }
  }
}

// Scores of one head to weights; returns their sum. `maximum` is minus infinity when nothing is visible.
HWY_INLINE float weigh_rows(float* HWY_RESTRICT weights, int n, float* HWY_RESTRICT maximum) {
  const FloatTag d;
  float highest = -std::numeric_limits<float>::infinity();
  for (int i = 0; i < n; ++i) {
    highest = weights[i] > highest ? weights[i] : highest;
  }
  *maximum = highest;
  const float base = highest == -std::numeric_limits<float>::infinity() ? 0.0F : highest;
  // The buffer reaches to the next multiple of the tile, so whole vectors may be computed.
  for (int i = 0; i < n; i += static_cast<int>(kLanes)) {
    const Floats score = hn::LoadU(d, weights + i);
    hn::StoreU(exp_nonpositive(d, hn::Sub(score, hn::Set(d, base))), d, weights + i);
  }
  float sum = 0.0F;
  for (int i = 0; i < n; ++i) {
    sum += weights[i];
  }
  return sum;
}

// Adds weights · values of n rows to kHeads outputs, kVectors vectors of each from element `at`.
template <size_t kHeads, size_t kVectors, bool kGuard>
HWY_INLINE void add_values(const float* HWY_RESTRICT values, size_t dim, int n,
                           const float* HWY_RESTRICT weights, size_t capacity, size_t at,
                           float* HWY_RESTRICT output) {
  const FloatTag d;
  Floats sum[kHeads][kVectors];
  for (size_t head = 0; head < kHeads; ++head) {
    for (size_t v = 0; v < kVectors; ++v) {
      sum[head][v] = hn::LoadU(d, output + head * dim + at + v * kLanes);
    }
  }
  for (size_t row = 0; row < static_cast<size_t>(n); ++row) {
    Floats value[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      value[v] = hn::LoadU(d, values + row * dim + at + v * kLanes);
    }
    for (size_t head = 0; head < kHeads; ++head) {
      const float weight = weights[head * capacity + row];
      if (kGuard && weight == 0.0F) {
        continue;
      }
      for (size_t v = 0; v < kVectors; ++v) {
        sum[head][v] = hn::MulAdd(hn::Set(d, weight), value[v], sum[head][v]);
      }
    }
  }
  for (size_t head = 0; head < kHeads; ++head) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[head][v], d, output + head * dim + at + v * kLanes);
    }
  }
}

template <size_t kHeads, bool kGuard>
HWY_INLINE void add_values_of_heads(const float* values, size_t dim, int n, const float* weights,
                                    size_t capacity, float* output) {
  size_t at = 0;
  for (; at + kOutputVectors * kLanes <= dim; at += kOutputVectors * kLanes) {
    add_values<kHeads, kOutputVectors, kGuard>(values, dim, n, weights, capacity, at, output);
  }
  for (; at < dim; at += kLanes) {
    add_values<kHeads, 1, kGuard>(values, dim, n, weights, capacity, at, output);
  }
}

template <bool kGuard>
HWY_INLINE void weigh_values(const cache::HeadRows& rows, int first, int last, size_t group,
                             const DecodeScratch& scratch) {
  const size_t dim = padded_dim(rows.head_dim);
  const size_t value_bytes =
      static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.value_type);
  for (int start = first; start < last; start += kTileRows) {
    const int n = std::min(kTileRows, last - start);
    load_rows(rows.value_type, rows.values + static_cast<size_t>(start) * value_bytes, n,
              rows.head_dim, scratch.rows);
    const float* const weights = scratch.weights + (start - first);
    size_t head = 0;
    for (; head + kMaxHeads <= group; head += kMaxHeads) {
      add_values_of_heads<kMaxHeads, kGuard>(scratch.rows, dim, n,
                                             weights + head * scratch.capacity, scratch.capacity,
                                             scratch.output + head * dim);
    }
    for (; head < group; ++head) {
      add_values_of_heads<1, kGuard>(scratch.rows, dim, n, weights + head * scratch.capacity,
                                     scratch.capacity, scratch.output + head * dim);
    }
  }
}

void attend_decode_block_impl(const cache::HeadRows& rows, const DecodeQuery& query, int block,
                              float scale, float* memory, float* partial) {
  const size_t group = static_cast<size_t>(query.gqa_group_size);
  const size_t head_dim = static_cast<size_t>(rows.head_dim);
  const size_t dim = padded_dim(rows.head_dim);
  float* const maxima = partial;
  float* const sums = partial + group;
  float* const outputs = partial + 2 * group;
  const int length = block_length(query.pos);
  const int32_t* const end = rows.positions + rows.n;
  const int first_pos = std::max(block * length, first_visible(query.pos, query.swa_window));
  const int32_t* const begin = std::lower_bound(rows.positions, end, first_pos);
  const int first = static_cast<int>(begin - rows.positions);
  const int last =
      static_cast<int>(std::lower_bound(begin, end, (block + 1) * length) - rows.positions);
  if (first == last) {
    std::fill_n(maxima, group, -std::numeric_limits<float>::infinity());
    return;
  }
  const DecodeScratch scratch =
      cut_decode_scratch(memory, query.gqa_group_size, rows.head_dim, query.pos);
  std::fill_n(scratch.q, 2 * group * dim, 0.0F);  // queries and outputs, padding included
  for (size_t head = 0; head < group; ++head) {
    std::copy_n(query.q + head * head_dim, head_dim, scratch.q + head * dim);
  }
  score_rows(rows, first, last, group, scale, scratch);
  for (size_t head = 0; head < group; ++head) {
    sums[head] = weigh_rows(scratch.weights + head * scratch.capacity, last - first, &maxima[head]);
  }
  if (rows.has_nonfinite_values) {
    weigh_values<true>(rows, first, last, group, scratch);
  } else {
    weigh_values<false>(rows, first, last, group, scratch);
  }
  for (size_t head = 0; head < group; ++head) {
    std::copy_n(scratch.output + head * dim, head_dim, outputs + head * head_dim);
  }
}

void merge_decode_blocks_impl(const float* partials, int n_blocks, int gqa_group_size, int head_dim,
                              float* out) {
  const size_t group = static_cast<size_t>(gqa_group_size);
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t stride = group * (dim + 2);
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  for (size_t head = 0; head < group; ++head) {
    float* const output = out + head * dim;
    float maximum = kNothing;
    float sum = 0.0F;
    std::fill_n(output, dim, 0.0F);
    for (int block = 0; block < n_blocks; ++block) {
      const float* const partial = partials + static_cast<size_t>(block) * stride;
      const float block_maximum = partial[head];
      if (block_maximum == kNothing) {
        continue;
      }
      const float block_sum = partial[group + head];
      const float* const block_output = partial + 2 * group + head * dim;
      if (maximum == kNothing) {
        maximum = block_maximum;
        sum = block_sum;
        std::copy_n(block_output, dim, output);
        continue;
      }
      const float highest = std::max(maximum, block_maximum);
      const float keep = exp_nonpositive(maximum - highest);
      const float take = exp_nonpositive(block_maximum - highest);
      maximum = highest;
      sum = sum * keep + block_sum * take;
      for (size_t i = 0; i < dim; ++i) {
        output[i] = output[i] * keep + block_output[i] * take;
      }
    }
    for (size_t i = 0; i < dim; ++i) {
      output[i] = sum == 0.0F ? 0.0F : output[i] / sum + 0.0F;  // -0 becomes +0
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(decode_scratch_floats_impl);
HWY_EXPORT(attend_decode_block_impl);
HWY_EXPORT(merge_decode_blocks_impl);

size_t decode_partial_floats(int gqa_group_size, int head_dim) {
  return static_cast<size_t>(gqa_group_size) * (static_cast<size_t>(head_dim) + 2);
}

size_t decode_scratch_floats(int gqa_group_size, int head_dim, int n_positions) {
  return HWY_DYNAMIC_DISPATCH(decode_scratch_floats_impl)(gqa_group_size, head_dim, n_positions);
}

void attend_decode_block(const cache::HeadRows& rows, const DecodeQuery& query, int block,
                         float scale, float* scratch, float* partial) noexcept {
  HWY_DYNAMIC_DISPATCH(attend_decode_block_impl)(rows, query, block, scale, scratch, partial);
}

void merge_decode_blocks(const float* partials, int n_blocks, int gqa_group_size, int head_dim,
                         float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(merge_decode_blocks_impl)(partials, n_blocks, gqa_group_size, head_dim, out);
}

}  // namespace winnow::kernels
#endif
