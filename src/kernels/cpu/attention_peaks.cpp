// A tile of queries against all rows that it sees: their softmax weights are kept until the sums are known, and the greatest
// of each row is taken.

#include "kernels/attention_peaks.h"

#include <algorithm>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_peaks.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/prompt_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

size_t peaks_scratch_floats_impl(int head_dim, int n_rows) {
  const size_t dim = padded_dim(head_dim);
  const size_t n_weights = (static_cast<size_t>(n_rows) + kRegisterRows) * kTileLanes;
  return dim * kTileLanes + dim * kTileRows + n_weights;
}

// peaks[i] = max(peaks[i], weights[i][lane] · shares[lane] of all lanes).
HWY_INLINE void raise_peaks(const float* HWY_RESTRICT weights, const float* HWY_RESTRICT shares,
                            std::span<float> peaks) {
  const FloatTag d;
  Floats share[kTileVectors];
  for (size_t v = 0; v < kTileVectors; ++v) {
    share[v] = hn::Load(d, shares + v * kLanes);
  }
  for (size_t i = 0; i < peaks.size(); ++i) {
    Floats highest = hn::Zero(d);
    for (size_t v = 0; v < kTileVectors; ++v) {
      const Floats weight = hn::Mul(hn::Load(d, weights + i * kTileLanes + v * kLanes), share[v]);
      highest = hn::IfThenElse(hn::Gt(weight, highest), weight, highest);
    }
    peaks[i] = std::max(peaks[i], hn::GetLane(hn::MaxOfLanes(d, highest)));
  }
}

void raise_attention_peaks_impl(const cache::HeadRows& rows, const PromptQueries& queries,
                                float scale, const float* factors, int first_slot,
                                std::span<float> peaks, float* scratch) {
  const size_t dim = padded_dim(rows.head_dim);
  float* const q = scratch;
  float* const tile = q + dim * kTileLanes;
  float* const weights = tile + dim * kTileRows;
  Lanes lanes;
  start_lanes(queries, lanes);
  transpose_queries(queries, rows.head_dim, q);
  const int n_visible = static_cast<int>(
      std::upper_bound(rows.positions, rows.positions + rows.n, lanes.highest_pos) -
      rows.positions);
  score_block(rows, 0, n_visible, queries, scale, {.q = q, .rows = tile, .turns = nullptr}, weights,
              lanes);
  weigh_block(n_visible, weights, lanes);
  HWY_ALIGN float shares[kTileLanes] = {};
  for (int lane = 0; lane < queries.n_lanes; ++lane) {
    const int token = (queries.first_lane + lane) / queries.gqa_group_size;
    const float factor = factors == nullptr ? 1.0F : factors[token];
    shares[lane] = lanes.block_sum[lane] > 0.0F ? factor / lanes.block_sum[lane] : 0.0F;
  }
  const int n_raised = std::clamp(n_visible - first_slot, 0, static_cast<int>(peaks.size()));
  raise_peaks(weights + static_cast<size_t>(first_slot) * kTileLanes, shares,
              peaks.first(static_cast<size_t>(n_raised)));
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(peaks_scratch_floats_impl);
HWY_EXPORT(raise_attention_peaks_impl);

size_t peaks_scratch_floats(int head_dim, int n_rows) {
  return HWY_DYNAMIC_DISPATCH(peaks_scratch_floats_impl)(head_dim, n_rows);
}

void raise_attention_peaks(const cache::HeadRows& rows, const PromptQueries& queries, float scale,
                           const float* factors, int first_slot, std::span<float> peaks,
                           float* scratch) noexcept {
  HWY_DYNAMIC_DISPATCH(raise_attention_peaks_impl)
  (rows, queries, scale, factors, first_slot, peaks, scratch);
}

}  // namespace winnow::kernels
#endif
