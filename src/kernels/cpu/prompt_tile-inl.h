// A tile of prompt queries, one to a vector lane: their scores and softmax weights over the rows of one KV head.
//
// Lanes are queries, so softmax sums and outputs are chains that run down the rows for all lanes at once, and
// a score is a few chains over the elements of the head. Both products are the same small matrix multiply: a scalar
// of the row, broadcast, times a vector of lanes.
//
// Included once per instruction set by Highway.

#if defined(WINNOW_KERNELS_CPU_PROMPT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_PROMPT_TILE_INL_H_
#undef WINNOW_KERNELS_CPU_PROMPT_TILE_INL_H_
#else
#define WINNOW_KERNELS_CPU_PROMPT_TILE_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/highway.h"
#include "kernels/attend.h"
#include "kernels/blocks.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// Accumulators fill the register file: 8 x 3 of 32 registers, or 4 x 3 of 16.
inline constexpr size_t kTileVectors = 3;
inline constexpr size_t kTileLanes = kTileVectors * kLanes;
inline constexpr size_t kRegisterRows = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64 ? 8 : 4;
static_assert(kTileRows % kRegisterRows == 0);

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

struct ScoreScratch {
  const float* q;  // as transpose_queries() leaves it
  float* rows;     // [kTileRows, padded_dim]
  float* turns;    // [padded_dim]
};

// Scores of the rows [first, last) into weights [rows, lanes], written up to a multiple of kRegisterRows, and each lane's
// maximum over them.
HWY_INLINE void score_block(const cache::HeadRows& rows, int first, int last,
                            const PromptQueries& queries, float scale, const ScoreScratch& scratch,
                            float* weights, Lanes& lanes) {
  float* const tile = scratch.rows;
  const size_t dim = padded_dim(rows.head_dim);
  const size_t key_bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.key_type);
  std::fill_n(lanes.block_maximum, kTileLanes, kMinusInfinity);
  for (int start = first; start < last; start += kTileRows) {
    const int n = std::min(kTileRows, last - start);
    load_rows(rows.key_type, rows.keys + static_cast<size_t>(start) * key_bytes, n, rows.head_dim,
              tile);
    if (queries.turns != nullptr) {
      turn_keys(*queries.turns, start, n, dim, tile, scratch.turns);
    }
    float* const scores = weights + static_cast<size_t>(start - first) * kTileLanes;
    for (size_t r = 0; r < static_cast<size_t>(n); r += kRegisterRows) {
      // A chain per 32 elements: a longer one would round more.
      for (size_t at = 0; at < dim; at += kChains) {
        multiply_rows<false>(tile + r * dim + at, dim, 1, scratch.q + at * kTileLanes, kChains,
                             at == 0 ? Into::kNew : Into::kAdd, scores + r * kTileLanes);
      }
    }
    for (int r = 0; r < n; ++r) {
      finish_scores(scores + static_cast<size_t>(r) * kTileLanes, scale,
                    seers_of(rows, start + r, queries.swa_window), lanes);
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

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#endif  // toggle
