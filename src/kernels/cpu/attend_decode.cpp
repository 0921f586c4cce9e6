// The decode kernel: one query of each head of a group against the rows of some blocks of positions.
//
// A row is brought to floats once for all query heads of its group that fit the registers. Scores run along the row
// (the canonical dot product), outputs are one chain per element down the rows.

#include <algorithm>
#include <type_traits>

#include "kernels/attend.h"
#include "kernels/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend_decode.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/decode_rows-inl.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Where a thread's scratch is cut.
struct DecodeScratch {
  float* q;         // [group, padded_dim] queries, padded
  float* output;    // [group, padded_dim]
  float* rows;      // [kTileRows, padded_dim] rows of odd head sizes, padded, or turned keys
  float* turns;     // [padded_dim]
  float* weights;   // [group, capacity] scores, then weights
  size_t n_most;    // rows of them
  size_t capacity;  // with room for scores that are written beyond the last row
};

HWY_INLINE size_t weights_capacity(int n_positions, int n_rows) {
  return block_capacity(n_positions, n_rows) + kScoreRows;
}

size_t decode_scratch_floats_impl(int group, int head_dim, int n_positions, int n_rows) {
  const size_t dim = padded_dim(head_dim);
  const size_t heads = static_cast<size_t>(group);
  return 2 * heads * dim + kTileRows * dim + dim + heads * weights_capacity(n_positions, n_rows);
}

HWY_INLINE DecodeScratch cut_decode_scratch(float* memory, int group, int head_dim, int pos,
                                            int n_rows) {
  const size_t dim = padded_dim(head_dim);
  const size_t heads = static_cast<size_t>(group);
  DecodeScratch cut{};
  cut.q = memory;
  cut.output = cut.q + heads * dim;
  cut.rows = cut.output + heads * dim;
  cut.turns = cut.rows + kTileRows * dim;
  cut.weights = cut.turns + dim;
  cut.n_most = block_capacity(pos + 1, n_rows);
  cut.capacity = weights_capacity(pos + 1, n_rows);
  return cut;
}

// Calls pass with the first of n heads and n, which is at most kMost, as a constant.
template <size_t kMost, class Pass>
HWY_INLINE void with_constant(size_t head, size_t n, const Pass& pass) {
  if constexpr (kMost > 1) {
    if (n < kMost) {
      with_constant<kMost - 1>(head, n, pass);
      return;
    }
  }
  pass(head, std::integral_constant<size_t, kMost>());
}

// Calls pass(first head, constant number of heads) for the heads of a group, in nearly equal passes of at most
// kMaxHeads.
template <class Pass>
HWY_INLINE void for_head_passes(size_t group, const Pass& pass) {
  const size_t n_passes = (group + kMaxHeads - 1) / kMaxHeads;
  for (size_t i = 0, head = 0; i < n_passes; ++i) {
    const size_t n = (group - head + n_passes - i - 1) / (n_passes - i);
    with_constant<kMaxHeads>(head, n, pass);
    head += n;
  }
}

// Calls action(tile, its first row - first) for the rows [first, last), with the rows as they lie in the cache, or, for
// head sizes that are no multiple of kChains, padded floats.
template <class Action>
HWY_INLINE void for_tiles(cache::RowType type, const std::byte* rows, int head_dim, int first,
                          int last, float* padded_rows, const Action& action) {
  const size_t dim = static_cast<size_t>(head_dim);
  for (int start = first; start < last; start += kTileRows) {
    const int n = HWY_MIN(kTileRows, last - start);
    const size_t n_rows = static_cast<size_t>(n);
    const size_t offset = static_cast<size_t>(start) * dim;
    if (padded_dim(head_dim) != dim) {
      load_rows(type, rows + offset * cache::element_bytes(type), n, head_dim, padded_rows);
      action(RowTile<float>{padded_rows, padded_dim(head_dim), n_rows}, start - first);
    } else if (type == cache::RowType::kF32) {
      action(RowTile<float>{reinterpret_cast<const float*>(rows) + offset, dim, n_rows},
             start - first);
    } else if (type == cache::RowType::kF16) {
      action(RowTile<hwy::float16_t>{reinterpret_cast<const hwy::float16_t*>(rows) + offset, dim,
                                     n_rows},
             start - first);
    } else {
      action(RowTile<hwy::bfloat16_t>{reinterpret_cast<const hwy::bfloat16_t*>(rows) + offset, dim,
                                      n_rows},
             start - first);
    }
  }
}

// The same for keys that are turned on the way.
template <class Action>
HWY_INLINE void for_turned_tiles(const cache::HeadRows& rows, const KeyTurns& turns, int first,
                                 int last, const DecodeScratch& scratch, const Action& action) {
  const size_t dim = padded_dim(rows.head_dim);
  const size_t key_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.key_type);
  for (int start = first; start < last; start += kTileRows) {
    const int n = HWY_MIN(kTileRows, last - start);
    load_rows(rows.key_type, rows.keys + static_cast<size_t>(start) * key_bytes, n, rows.head_dim,
              scratch.rows);
    turn_keys(turns, start, n, dim, scratch.rows, scratch.turns);
    action(RowTile<float>{scratch.rows, dim, static_cast<size_t>(n)}, start - first);
  }
}

// Calls action(from, to) for the parts of [first, last) that the query reads.
template <class Action>
HWY_INLINE void for_read_parts(const DecodeQuery& query, int first, int last,
                               const Action& action) {
  if (query.runs.empty()) {
    action(first, last);
    return;
  }
  for (const RowRun& run : query.runs) {
    const int from = std::max(run.first, first);
    const int to = std::min(run.last, last);
    if (from < to) {
      action(from, to);
    }
  }
}

// Scores of the rows of [first, last) that are read, for all heads of the group; those of hidden rows are minus infinity.
// Whole groups are written, also over rows that are not read or come next.
HWY_INLINE void score_rows_of_group(const cache::HeadRows& rows, const DecodeQuery& query,
                                    int first, int last, float scale,
                                    const DecodeScratch& scratch) {
  const size_t dim = padded_dim(rows.head_dim);
  const size_t group = static_cast<size_t>(query.gqa_group_size);
  for_read_parts(query, first, last, [&](int from, int to) HWY_ATTR {
    const auto score = [&](const auto& keys, int at) HWY_ATTR {
      for_head_passes(group, [&](size_t head, auto n_heads) HWY_ATTR {
        score_rows<decltype(n_heads)::value>(
            keys, scratch.q + head * dim, dim, scale,
            scratch.weights + head * scratch.capacity + (from - first) + at, scratch.capacity);
      });
    };
    if (query.turns != nullptr) {
      for_turned_tiles(rows, *query.turns, from, to, scratch, score);
    } else {
      for_tiles(rows.key_type, rows.keys, rows.head_dim, from, to, scratch.rows, score);
    }
  });
  for (int i = 0; rows.hidden != nullptr && i < last - first; ++i) {
    for (size_t head = 0; rows.hidden[first + i] != cache::kVisible && head < group; ++head) {
      scratch.weights[head * scratch.capacity + static_cast<size_t>(i)] = kMinusInfinity;
    }
  }
}

HWY_INLINE float highest_of(const float* HWY_RESTRICT scores, int n) {
  const FloatTag d;
  const size_t n_rows = static_cast<size_t>(n);
  const size_t n_whole = n_rows / kLanes * kLanes;
  const auto rest = hn::FirstN(d, n_rows - n_whole);
  Floats highest =
      hn::IfThenElse(rest, hn::MaskedLoad(rest, d, scores + n_whole), hn::Set(d, kMinusInfinity));
  for (size_t i = 0; i < n_whole; i += kLanes) {
    highest = hn::Max(hn::LoadU(d, scores + i), highest);
  }
  return hn::GetLane(hn::MaxOfLanes(d, highest));
}

// Scores to weights exp(score - maximum).
HWY_INLINE void weigh_rows(float* HWY_RESTRICT weights, int n, float maximum) {
  const FloatTag d;
  const size_t n_rows = static_cast<size_t>(n);
  const size_t n_whole = n_rows / kLanes * kLanes;
  const auto rest = hn::FirstN(d, n_rows - n_whole);
  const Floats base = hn::Set(d, maximum == kMinusInfinity ? 0.0F : maximum);
  for (size_t i = 0; i < n_whole; i += kLanes) {
    hn::StoreU(exp_nonpositive(d, hn::Sub(hn::LoadU(d, weights + i), base)), d, weights + i);
  }
  const Floats last = hn::MaskedLoad(rest, d, weights + n_whole);
  hn::BlendedStore(exp_nonpositive(d, hn::Sub(last, base)), rest, d, weights + n_whole);
}

template <bool kGuard>
HWY_INLINE void weigh_values(const cache::HeadRows& rows, const DecodeQuery& query, int first,
                             int last, const DecodeScratch& scratch, float* sums) {
  const size_t dim = padded_dim(rows.head_dim);
  for_read_parts(query, first, last, [&](int from, int to) HWY_ATTR {
    for_tiles(rows.value_type, rows.values, rows.head_dim, from, to, scratch.rows,
              [&](const auto& values, int at) HWY_ATTR {
                for_head_passes(
                    static_cast<size_t>(query.gqa_group_size),
                    [&](size_t head, auto n_heads) HWY_ATTR {
                      add_all_values<decltype(n_heads)::value, kGuard>(
                          values, scratch.weights + head * scratch.capacity + (from - first) + at,
                          scratch.capacity, dim, scratch.output + head * dim, sums + head);
                    });
              });
  });
}

// One block's weights and outputs from the scores of its rows [first, last), which are at `weights`.
HWY_INLINE void finish_block(const cache::HeadRows& rows, const DecodeQuery& query, int first,
                             int last, DecodeScratch scratch, float* partial) {
  const size_t group = static_cast<size_t>(query.gqa_group_size);
  const size_t head_dim = static_cast<size_t>(rows.head_dim);
  const size_t dim = padded_dim(rows.head_dim);
  float* const maxima = partial;
  float* const sums = partial + group;
  float* const outputs = partial + 2 * group;
  if (first == last) {
    std::fill_n(maxima, group, kMinusInfinity);
    return;
  }
  for (size_t head = 0; head < group; ++head) {
    float* const weights = scratch.weights + head * scratch.capacity;
    maxima[head] = kMinusInfinity;
    for_read_parts(query, first, last, [&](int from, int to) HWY_ATTR {
      maxima[head] = std::max(maxima[head], highest_of(weights + (from - first), to - from));
    });
    for_read_parts(query, first, last, [&](int from, int to) HWY_ATTR {
      weigh_rows(weights + (from - first), to - from, maxima[head]);
    });
  }
  std::fill_n(sums, group, 0.0F);
  std::fill_n(scratch.output, group * dim, 0.0F);
  if (rows.has_nonfinite_values) {
    weigh_values<true>(rows, query, first, last, scratch, sums);
  } else {
    weigh_values<false>(rows, query, first, last, scratch, sums);
  }
  for (size_t head = 0; head < group; ++head) {
    std::copy_n(scratch.output + head * dim, head_dim, outputs + head * head_dim);
  }
}

void attend_decode_blocks_impl(const cache::HeadRows& rows, const DecodeQuery& query,
                               int first_block, int n_blocks, float scale, float* memory,
                               float* partials) {
  const size_t group = static_cast<size_t>(query.gqa_group_size);
  const size_t head_dim = static_cast<size_t>(rows.head_dim);
  const size_t dim = padded_dim(rows.head_dim);
  const size_t partial_floats = group * (head_dim + 2);
  const DecodeScratch scratch =
      cut_decode_scratch(memory, query.gqa_group_size, rows.head_dim, query.pos, rows.n);
  std::fill_n(scratch.q, group * dim, 0.0F);  // padding included
  for (size_t head = 0; head < group; ++head) {
    std::copy_n(query.q + head * head_dim, head_dim, scratch.q + head * dim);
  }
  const int length = block_length(query.pos);
  const int32_t* const end = rows.positions + rows.n;
  const auto first_at = [&](const int32_t* from, int pos) {
    return static_cast<int>(std::lower_bound(from, end, pos) - rows.positions);
  };
  int starts[kMaxBlocks + 1];  // of the blocks' rows
  starts[0] = first_at(rows.positions,
                       std::max(first_block * length, first_visible(query.pos, query.swa_window)));
  for (int i = 1; i <= n_blocks; ++i) {
    starts[i] = first_at(rows.positions + starts[i - 1], (first_block + i) * length);
  }
  // Scores know nothing of blocks: those of several go together, as far as there is room.
  for (int i = 0; i < n_blocks;) {
    int n = 1;
    while (i + n < n_blocks &&
           static_cast<size_t>(starts[i + n + 1] - starts[i]) <= scratch.n_most) {
      ++n;
    }
    score_rows_of_group(rows, query, starts[i], starts[i + n], scale, scratch);
    for (int block = i; block < i + n; ++block) {
      DecodeScratch at_block = scratch;
      at_block.weights += starts[block] - starts[i];
      finish_block(rows, query, starts[block], starts[block + 1], at_block,
                   partials + static_cast<size_t>(block) * partial_floats);
      for (size_t head = 0; query.weights != nullptr && head < group; ++head) {
        float* const weights = query.weights + head * query.weights_stride;
        const float* const of_block = at_block.weights + head * scratch.capacity - starts[block];
        std::fill_n(weights + starts[block], starts[block + 1] - starts[block], 0.0F);
        for_read_parts(query, starts[block], starts[block + 1], [&](int from, int to) HWY_ATTR {
          std::copy(of_block + from, of_block + to, weights + from);
        });
      }
    }
    i += n;
  }
}

void merge_decode_blocks_impl(const float* partials, int n_blocks, int gqa_group_size, int head_dim,
                              float* out) {
  const size_t group = static_cast<size_t>(gqa_group_size);
  const size_t dim = static_cast<size_t>(head_dim);
  const size_t stride = group * (dim + 2);
  for (size_t head = 0; head < group; ++head) {
    float* const output = out + head * dim;
    float maximum = kMinusInfinity;
    float sum = 0.0F;
    std::fill_n(output, dim, 0.0F);
    for (int block = 0; block < n_blocks; ++block) {
      const float* const partial = partials + static_cast<size_t>(block) * stride;
      const float block_maximum = partial[head];
      if (block_maximum == kMinusInfinity) {
        continue;
      }
      const float block_sum = partial[group + head];
      const float* const block_output = partial + 2 * group + head * dim;
      if (maximum == kMinusInfinity) {
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
HWY_EXPORT(attend_decode_blocks_impl);
HWY_EXPORT(merge_decode_blocks_impl);

size_t decode_partial_floats(int gqa_group_size, int head_dim) {
  return static_cast<size_t>(gqa_group_size) * (static_cast<size_t>(head_dim) + 2);
}

size_t decode_scratch_floats(int gqa_group_size, int head_dim, int n_positions, int n_rows) {
  return HWY_DYNAMIC_DISPATCH(decode_scratch_floats_impl)(gqa_group_size, head_dim, n_positions,
                                                          n_rows);
}

void attend_decode_blocks(const cache::HeadRows& rows, const DecodeQuery& query, int first_block,
                          int n_blocks, float scale, float* scratch, float* partials) noexcept {
  HWY_DYNAMIC_DISPATCH(attend_decode_blocks_impl)
  (rows, query, first_block, n_blocks, scale, scratch, partials);
}

void merge_decode_blocks(const float* partials, int n_blocks, int gqa_group_size, int head_dim,
                         float* out) noexcept {
  HWY_DYNAMIC_DISPATCH(merge_decode_blocks_impl)(partials, n_blocks, gqa_group_size, head_dim, out);
}

}  // namespace winnow::kernels
#endif
