// The prompt kernel: a tile of queries against the rows of one KV head, block by block. Where the weights that rows
// receive are wanted, those of all blocks are kept until the softmax sums are known.

#include <algorithm>
#include <limits>

#include "kernels/attend.h"
#include "kernels/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend_prompt.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/column_mass-inl.h"
#include "kernels/cpu/prompt_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Where a thread's scratch is cut. Sizes in floats.
struct Scratch {
  float* q;             // [head_dim, lanes] queries, transposed
  float* rows;          // [kTileRows, padded_dim] keys or values
  float* weights;       // [block rows or, for column mass, all rows; lanes] scores, then weights
  float* block_output;  // [padded_dim, lanes]
  float* output;        // [padded_dim, lanes]
  float* turns;         // [padded_dim]
};

size_t prompt_scratch_floats_impl(int head_dim, int n_positions, int n_mass_rows, int n_rows) {
  const size_t dim = padded_dim(head_dim);
  const size_t n_kept = n_mass_rows > 0 ? static_cast<size_t>(n_mass_rows) + kRegisterRows : 0;
  return 3 * dim * kTileLanes + dim * kTileRows + dim +
         std::max(block_capacity(n_positions, n_rows), n_kept) * kTileLanes;
}

HWY_INLINE Scratch cut_scratch(float* scratch, int head_dim) {
  const size_t dim = padded_dim(head_dim);
  Scratch cut{};
  cut.q = scratch;
  cut.block_output = cut.q + dim * kTileLanes;
  cut.output = cut.block_output + dim * kTileLanes;
  cut.rows = cut.output + dim * kTileLanes;
  cut.turns = cut.rows + dim * kTileRows;
  cut.weights = cut.turns + dim;
  return cut;
}

// block_output [padded_dim, lanes] = weights · values of the rows [first, last).
template <bool kGuard>
HWY_INLINE void weigh_values(const cache::HeadRows& rows, int first, int last,
                             const Scratch& scratch) {
  const size_t dim = padded_dim(rows.head_dim);
  const size_t value_bytes =
      static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.value_type);
  for (int start = first; start < last; start += kTileRows) {
    const int n = std::min(kTileRows, last - start);
    load_rows(rows.value_type, rows.values + static_cast<size_t>(start) * value_bytes, n,
              rows.head_dim, scratch.rows);
    const float* const weights = scratch.weights + static_cast<size_t>(start - first) * kTileLanes;
    for (size_t at = 0; at < dim; at += kRegisterRows) {
      multiply_rows<kGuard>(scratch.rows + at, 1, dim, weights, static_cast<size_t>(n),
                            start == first ? Into::kNew : Into::kChain,
                            scratch.block_output + at * kTileLanes);
    }
  }
}

// Takes a block into what the blocks before it came to. A lane that saw nothing in the block stays as it is.
HWY_INLINE void merge_block(const Scratch& scratch, size_t dim, Lanes& lanes) {
  const FloatTag d;
  const Floats nothing = hn::Set(d, kMinusInfinity);
  for (size_t v = 0; v < kTileVectors; ++v) {
    const Floats m_old = hn::Load(d, lanes.maximum + v * kLanes);
    const Floats m_block = hn::Load(d, lanes.block_maximum + v * kLanes);
    const auto is_empty = hn::Eq(m_block, nothing);
    const auto is_first = hn::Eq(m_old, nothing);
    const Floats m = hn::Max(m_old, m_block);
    const Floats base = hn::IfThenElse(hn::Eq(m, nothing), hn::Zero(d), m);
    const Floats keep =
        hn::IfThenElse(is_first, hn::Zero(d), exp_nonpositive(d, hn::Sub(m_old, base)));
    const Floats take = exp_nonpositive(d, hn::Sub(m_block, base));
    const auto blend = [&](Floats old_value, Floats block_value) HWY_ATTR {
      const Floats merged = hn::IfThenElse(is_first, block_value,
                                           hn::MulAdd(block_value, take, hn::Mul(old_value, keep)));
      return hn::IfThenElse(is_empty, old_value, merged);
    };
    const size_t lane = v * kLanes;
    hn::Store(hn::IfThenElse(is_empty, m_old, m), d, lanes.maximum + lane);
    hn::Store(blend(hn::Load(d, lanes.sum + lane), hn::Load(d, lanes.block_sum + lane)), d,
              lanes.sum + lane);
    for (size_t i = 0; i < dim; ++i) {
      float* const at = scratch.output + i * kTileLanes + lane;
      hn::Store(blend(hn::Load(d, at), hn::Load(d, scratch.block_output + i * kTileLanes + lane)),
                d, at);
    }
  }
}

HWY_INLINE void write_outputs(const PromptQueries& queries, int head_dim, const float* output,
                              const float* sum) {
  for (int lane = 0; lane < queries.n_lanes; ++lane) {
    const int index = queries.first_lane + lane;
    float* const to =
        queries.out + static_cast<size_t>(index / queries.gqa_group_size) * queries.token_stride +
        static_cast<size_t>(index % queries.gqa_group_size) * static_cast<size_t>(head_dim);
    const float total = sum[lane];
    for (int i = 0; i < head_dim; ++i) {
      // Nothing visible gives 0, and -0 becomes +0.
      const float weighed = output[static_cast<size_t>(i) * kTileLanes + static_cast<size_t>(lane)];
      to[i] = total == 0.0F ? 0.0F : weighed / total + 0.0F;
    }
  }
}

// A block whose weights are kept.
struct WeighedBlock {
  HWY_ALIGN float maximum[kTileLanes];
  int first;  // slots
  int last;
};

// Adds what the lanes of a tile paid to the rows of all its blocks: weights [rows, lanes] are relative to their block's
// maximum.
HWY_INLINE void add_column_mass(const WeighedBlock* blocks, int n_blocks, const Lanes& lanes,
                                int n_lanes, const float* weights, const PromptQueries& queries) {
  for (int i = 0; i < n_blocks; ++i) {
    const WeighedBlock& block = blocks[i];
    HWY_ALIGN float shares[kTileLanes] = {};
    for (int lane = 0; lane < n_lanes; ++lane) {
      const float base = lanes.maximum[lane] == kMinusInfinity ? 0.0F : lanes.maximum[lane];
      const float sum = lanes.sum[lane];
      shares[lane] = sum > 0.0F ? exp_nonpositive(block.maximum[lane] - base) / sum : 0.0F;
    }
    add_mass<kTileVectors>(weights, static_cast<size_t>(block.last - block.first), shares,
                           queries.mass_scale, queries.mass + block.first);
    weights += static_cast<size_t>(block.last - block.first) * kTileLanes;
  }
}

void attend_prompt_impl(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                        float* scratch_memory) {
  Scratch scratch = cut_scratch(scratch_memory, rows.head_dim);
  const float* const all_weights = scratch.weights;
  // Without outputs there is nothing to merge but maxima and sums.
  const size_t dim = queries.out == nullptr ? 0 : padded_dim(rows.head_dim);
  Lanes lanes;
  start_lanes(queries, lanes);
  transpose_queries(queries, rows.head_dim, scratch.q);
  std::fill_n(scratch.output, dim * kTileLanes, 0.0F);

  const int length = block_length(lanes.highest_pos);
  const int32_t* const end =
      std::upper_bound(rows.positions, rows.positions + rows.n, lanes.highest_pos);
  const int32_t* const begin =
      std::lower_bound(rows.positions, end, first_visible(lanes.lowest_pos, queries.swa_window));
  const int n_visible = static_cast<int>(end - rows.positions);
  WeighedBlock blocks[kMaxBlocks];
  int n_blocks = 0;
  for (int first = static_cast<int>(begin - rows.positions); first < n_visible;) {
    // The block in which the next row lies; blocks without rows never come up.
    const int block_end = (rows.positions[first] / length + 1) * length;
    const int last =
        static_cast<int>(std::lower_bound(rows.positions + first, end, block_end) - rows.positions);
    score_block(rows, first, last, queries, scale,
                {.q = scratch.q, .rows = scratch.rows, .turns = scratch.turns}, scratch.weights,
                lanes);
    weigh_block(last - first, scratch.weights, lanes);
    if (queries.out != nullptr) {
      if (rows.has_nonfinite_values) {
        weigh_values<true>(rows, first, last, scratch);
      } else {
        weigh_values<false>(rows, first, last, scratch);
      }
    }
    if (queries.mass != nullptr) {
      WeighedBlock& block = blocks[n_blocks++];
      block.first = first;
      block.last = last;
      std::copy_n(lanes.block_maximum, kTileLanes, block.maximum);
      scratch.weights += static_cast<size_t>(last - first) * kTileLanes;
    }
    merge_block(scratch, dim, lanes);
    first = last;
  }
  if (queries.out != nullptr) {
    write_outputs(queries, rows.head_dim, scratch.output, lanes.sum);
  }
  add_column_mass(blocks, n_blocks, lanes, queries.n_lanes, all_weights, queries);
}

int prompt_tile_lanes_impl() {
  return static_cast<int>(kTileLanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(prompt_tile_lanes_impl);
HWY_EXPORT(prompt_scratch_floats_impl);
HWY_EXPORT(attend_prompt_impl);

int prompt_tile_lanes() {
  return HWY_DYNAMIC_DISPATCH(prompt_tile_lanes_impl)();
}

size_t prompt_scratch_floats(int head_dim, int n_positions, int n_mass_rows, int n_rows) {
  return HWY_DYNAMIC_DISPATCH(prompt_scratch_floats_impl)(head_dim, n_positions, n_mass_rows,
                                                          n_rows);
}

void attend_prompt(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                   float* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(attend_prompt_impl)(rows, queries, scale, scratch);
}

}  // namespace winnow::kernels
#endif
