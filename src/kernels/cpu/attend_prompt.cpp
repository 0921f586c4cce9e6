// The prompt kernel: a tile of queries, one to a vector lane, against the rows of one KV head.
//
// Lanes are queries, so softmax sums and outputs are chains that run down the rows for all lanes at once, and
// a score is a few chains over the elements of the head. Both products are the same small matrix multiply: a scalar
// of the row, broadcast, times a vector of lanes.

#include <algorithm>
#include <limits>

#include "kernels/attend.h"
#include "kernels/blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attend_prompt.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Accumulators fill the register file: 8 x 3 of 32 registers, or 4 x 3 of 16.
inline constexpr size_t kTileVectors = 3;
inline constexpr size_t kTileLanes = kTileVectors * kLanes;
inline constexpr size_t kRegisterRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 8 : 4;
static_assert(kTileRows % kRegisterRows == 0);

// Where a thread's scratch is cut. Sizes in floats.
struct Scratch {
  float* q;             // [head_dim, lanes] queries, transposed
  float* rows;          // [kTileRows, padded_dim] keys or values
  float* weights;       // [block rows, lanes] scores, then weights
  float* block_output;  // [padded_dim, lanes]
  float* output;        // [padded_dim, lanes]
};

size_t prompt_scratch_floats_impl(int head_dim, int n_positions) {
  const size_t dim = padded_dim(head_dim);
  return 3 * dim * kTileLanes + dim * kTileRows + block_capacity(n_positions) * kTileLanes;
}

HWY_INLINE Scratch cut_scratch(float* scratch, int head_dim) {
  const size_t dim = padded_dim(head_dim);
  Scratch cut{};
  cut.q = scratch;
  cut.block_output = cut.q + dim * kTileLanes;
  cut.output = cut.block_output + dim * kTileLanes;
  cut.rows = cut.output + dim * kTileLanes;
  cut.weights = cut.rows + dim * kTileRows;
  return cut;
}

// What becomes of c in a product: replaced, the start of each chain, or added to when the chains are done.
enum class Into { kNew, kChain, kAdd };

// c[r][lane] = sum over k, ascending, of a[r * a_row + k * a_step] * b[k][lane] for kRegisterRows rows r. With kGuard,
// terms whose b is 0 are left out.
template <bool kGuard>
HWY_INLINE void multiply_rows(const float* HWY_RESTRICT a, size_t a_row, size_t a_step,
                              const float* HWY_RESTRICT b, size_t n, Into into,
                              float* HWY_RESTRICT c) {
  const FloatTag d;
  Floats sum[kRegisterRows][kTileVectors];
  for (size_t r = 0; r < kRegisterRows; ++r) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      sum[r][v] = into == Into::kChain ? hn::Load(d, c + r * kTileLanes + v * kLanes) : hn::Zero(d);
    }
  }
  for (size_t k = 0; k < n; ++k) {
    Floats lanes[kTileVectors];
    for (size_t v = 0; v < kTileVectors; ++v) {
      lanes[v] = hn::Load(d, b + k * kTileLanes + v * kLanes);
    }
    for (size_t r = 0; r < kRegisterRows; ++r) {
      const Floats scalar = hn::Set(d, a[r * a_row + k * a_step]);
      for (size_t v = 0; v < kTileVectors; ++v) {
        const Floats next = hn::MulAdd(scalar, lanes[v], sum[r][v]);
        if constexpr (kGuard) {
          sum[r][v] = hn::IfThenElse(hn::Eq(lanes[v], hn::Zero(d)), sum[r][v], next);
        } else {
          sum[r][v] = next;
        }
      }
    }
  }
  for (size_t r = 0; r < kRegisterRows; ++r) {
    for (size_t v = 0; v < kTileVectors; ++v) {
      float* const to = c + r * kTileLanes + v * kLanes;
      hn::Store(into == Into::kAdd ? hn::Add(hn::Load(d, to), sum[r][v]) : sum[r][v], d, to);
    }
  }
}

// What is kept per lane while the tile's blocks go by.
struct Lanes {
  HWY_ALIGN int32_t positions[kTileLanes];    // of the lanes' queries
  HWY_ALIGN float maximum[kTileLanes];        // highest score so far
  HWY_ALIGN float sum[kTileLanes];            // of weights, relative to that score
  HWY_ALIGN float block_maximum[kTileLanes];  // the same for the block at hand
  HWY_ALIGN float block_sum[kTileLanes];
  int lowest_pos;
  int highest_pos;
};

HWY_INLINE void start_lanes(const PromptQueries& queries, Lanes& lanes) {
  lanes.lowest_pos = queries.first_pos + queries.first_lane / queries.gqa_group_size;
  lanes.highest_pos =
      queries.first_pos + (queries.first_lane + queries.n_lanes - 1) / queries.gqa_group_size;
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    const int index = queries.first_lane + static_cast<int>(lane);
    const bool is_used = static_cast<int>(lane) < queries.n_lanes;
    lanes.positions[lane] =
        is_used ? queries.first_pos + index / queries.gqa_group_size : lanes.lowest_pos;
  }
  std::fill_n(lanes.maximum, kTileLanes, kMinusInfinity);
  std::fill_n(lanes.sum, kTileLanes, 0.0F);
}

// Into q [padded_dim, lanes]; lanes that are not used, and the padding, get zeros.
HWY_INLINE void transpose_queries(const PromptQueries& queries, int head_dim,
                                  float* HWY_RESTRICT q) {
  for (size_t lane = 0; lane < kTileLanes; ++lane) {
    const int index = queries.first_lane + static_cast<int>(lane);
    const bool is_used = static_cast<int>(lane) < queries.n_lanes;
    const int token = is_used ? index / queries.gqa_group_size : 0;
    const int head = is_used ? index % queries.gqa_group_size : 0;
    const float* const from = queries.q + static_cast<size_t>(token) * queries.token_stride +
                              static_cast<size_t>(head) * static_cast<size_t>(head_dim);
    for (size_t i = 0; i < padded_dim(head_dim); ++i) {
      q[i * kTileLanes + lane] = is_used && i < static_cast<size_t>(head_dim) ? from[i] : 0.0F;
    }
  }
}

// The positions of the queries that see a row.
struct Seers {
  int first;
  int last;
};

HWY_INLINE Seers seers_of(const cache::HeadRows& rows, int slot, int swa_window) {
  constexpr int kNever = std::numeric_limits<int32_t>::max();
  if (rows.hidden != nullptr && rows.hidden[slot] != cache::kVisible) {
    return {kNever, kNever};
  }
  const int pos = rows.positions[slot];
  return {pos, swa_window > 0 ? pos + swa_window - 1 : kNever};
}

// Scales the scores of one row, hides it from lanes that may not see it, and takes it into their maximum.
HWY_INLINE void finish_scores(float* HWY_RESTRICT scores, float scale, Seers seers, Lanes& lanes) {
  const FloatTag d;
  const IntTag di;
  const bool needs_mask = seers.first > lanes.lowest_pos || seers.last < lanes.highest_pos;
  for (size_t v = 0; v < kTileVectors; ++v) {
    Floats s = hn::Mul(hn::Load(d, scores + v * kLanes), hn::Set(d, scale));
    if (needs_mask) {
      const auto pos = hn::Load(di, lanes.positions + v * kLanes);
      const auto unseen =
          hn::Or(hn::Lt(pos, hn::Set(di, seers.first)), hn::Gt(pos, hn::Set(di, seers.last)));
      s = hn::IfThenElse(hn::RebindMask(d, unseen), hn::Set(d, kMinusInfinity), s);
    }
    hn::Store(s, d, scores + v * kLanes);
    float* const maximum = lanes.block_maximum + v * kLanes;
    hn::Store(hn::Max(s, hn::Load(d, maximum)), d, maximum);
  }
}

// Scores of the rows [first, last) into `scratch.weights`, and each lane's maximum over them.
HWY_INLINE void score_block(const cache::HeadRows& rows, int first, int last, int swa_window,
                            float scale, const Scratch& scratch, Lanes& lanes) {
  const size_t dim = padded_dim(rows.head_dim);
  const size_t key_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.key_type);
  std::fill_n(lanes.block_maximum, kTileLanes, kMinusInfinity);
  for (int start = first; start < last; start += kTileRows) {
    const int n = std::min(kTileRows, last - start);
    load_rows(rows.key_type, rows.keys + static_cast<size_t>(start) * key_bytes, n, rows.head_dim,
              scratch.rows);
    float* const scores = scratch.weights + static_cast<size_t>(start - first) * kTileLanes;
    for (size_t r = 0; r < static_cast<size_t>(n); r += kRegisterRows) {
      // A chain per 32 elements: a longer one would round more.
      for (size_t at = 0; at < dim; at += kChains) {
        multiply_rows<false>(scratch.rows + r * dim + at, dim, 1, scratch.q + at * kTileLanes,
                             kChains, at == 0 ? Into::kNew : Into::kAdd, scores + r * kTileLanes);
      }
    }
    for (int r = 0; r < n; ++r) {
      finish_scores(scores + static_cast<size_t>(r) * kTileLanes, scale,
                    seers_of(rows, start + r, swa_window), lanes);
    }
  }
}

// Scores to weights exp(score - maximum), and their sum.
HWY_INLINE void weigh_block(int n_rows, float* HWY_RESTRICT weights, Lanes& lanes) {
  const FloatTag d;
  for (size_t v = 0; v < kTileVectors; ++v) {
    const Floats highest = hn::Load(d, lanes.block_maximum + v * kLanes);
    // A lane that sees nothing here has no maximum; any finite one turns its scores into weights of 0.
    const Floats base =
        hn::IfThenElse(hn::Eq(highest, hn::Set(d, kMinusInfinity)), hn::Zero(d), highest);
    Floats total = hn::Zero(d);
    for (int r = 0; r < n_rows; ++r) {
      float* const at = weights + static_cast<size_t>(r) * kTileLanes + v * kLanes;
      const Floats weight = exp_nonpositive(d, hn::Sub(hn::Load(d, at), base));
      hn::Store(weight, d, at);
      total = hn::Add(total, weight);
    }
    hn::Store(total, d, lanes.block_sum + v * kLanes);
  }
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

void attend_prompt_impl(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                        float* scratch_memory) {
  const size_t dim = padded_dim(rows.head_dim);
  const Scratch scratch = cut_scratch(scratch_memory, rows.head_dim);
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
  for (int first = static_cast<int>(begin - rows.positions); first < n_visible;) {
    // The block in which the next row lies; blocks without rows never come up.
    const int block_end = (rows.positions[first] / length + 1) * length;
    const int last =
        static_cast<int>(std::lower_bound(rows.positions + first, end, block_end) - rows.positions);
    score_block(rows, first, last, queries.swa_window, scale, scratch, lanes);
    weigh_block(last - first, scratch.weights, lanes);
    if (rows.has_nonfinite_values) {
      weigh_values<true>(rows, first, last, scratch);
    } else {
      weigh_values<false>(rows, first, last, scratch);
    }
    merge_block(scratch, dim, lanes);
    first = last;
  }
  write_outputs(queries, rows.head_dim, scratch.output, lanes.sum);
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

size_t prompt_scratch_floats(int head_dim, int n_positions) {
  return HWY_DYNAMIC_DISPATCH(prompt_scratch_floats_impl)(head_dim, n_positions);
}

void attend_prompt(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                   float* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(attend_prompt_impl)(rows, queries, scale, scratch);
}

}  // namespace winnow::kernels
#endif
