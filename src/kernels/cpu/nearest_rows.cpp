// For each row the one of greatest cosine among others: a lane is a candidate, so that vectors of any width give the same bits.

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "kernels/row_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/nearest_rows.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/row_vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kVectors = 2;  // of candidates at once
constexpr size_t kTile = kVectors * kLanes;
constexpr size_t kPanel = 1024;  // candidates that are compared with all rows before the next
constexpr size_t kRowsAtOnce = 4;
constexpr size_t kRowBlock = 64;  // rows that pass over the panel together
static_assert(kPanel % kTile == 0 && kRowBlock % kRowsAtOnce == 0);

// The best candidate so far of each lane.
struct Best {
  Floats cosine;
  hn::Vec<IntTag> index;
};

// Rows x [kRowsAtOnce, dim] with one tile of candidates y [dim, kTile], the first of which is candidate `first`.
HWY_INLINE void compare(const float* HWY_RESTRICT x, const float* HWY_RESTRICT y, size_t dim,
                        const float* HWY_RESTRICT scales, int first, Best (&best)[kRowsAtOnce]) {
  const FloatTag d;
  const IntTag di;
  Floats dots[kRowsAtOnce][kVectors];
  for (auto& of_row : dots) {
    for (Floats& dot : of_row) {
      dot = hn::Zero(d);
    }
  }
  for (size_t a = 0; a < dim; ++a) {
    Floats element[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      element[v] = hn::Load(d, y + a * kTile + v * kLanes);
    }
    for (size_t row = 0; row < kRowsAtOnce; ++row) {
      const Floats factor = hn::Set(d, x[row * dim + a]);
      for (size_t v = 0; v < kVectors; ++v) {
        dots[row][v] = hn::MulAdd(factor, element[v], dots[row][v]);
      }
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const Floats scale = hn::Load(d, scales + v * kLanes);
    const auto index = hn::Iota(di, first + static_cast<int>(v * kLanes));
    for (size_t row = 0; row < kRowsAtOnce; ++row) {
      const Floats cosine = hn::Mul(dots[row][v], scale);
      const auto is_better = hn::Gt(cosine, best[row].cosine);
      best[row].cosine = hn::IfThenElse(is_better, cosine, best[row].cosine);
      best[row].index = hn::IfThenElse(hn::RebindMask(di, is_better), index, best[row].index);
    }
  }
}

// The first of the greatest of all lanes, where it is better than what earlier panels gave.
HWY_INLINE void reduce(const Best& best, Nearest& nearest) {
  const FloatTag d;
  const IntTag di;
  HWY_ALIGN float cosines[kLanes];
  HWY_ALIGN int32_t indices[kLanes];
  hn::Store(best.cosine, d, cosines);
  hn::Store(best.index, di, indices);
  Nearest of_panel;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const bool is_first = cosines[lane] == of_panel.cosine && indices[lane] < of_panel.index;
    if (cosines[lane] > of_panel.cosine || is_first) {
      of_panel = {.index = indices[lane], .cosine = cosines[lane]};
    }
  }
  if (of_panel.cosine > nearest.cosine) {
    nearest = of_panel;
  }
}

// Candidates [n] to tiles [n / kTile, dim, kTile], padded with zeros.
void load_tiles(const RowVectors& rows, std::span<const int> candidates, float* row,
                std::span<float> tiles) {
  std::ranges::fill(tiles, 0.0F);
  for (size_t first = 0; first < candidates.size(); first += kTile) {
    const size_t n = HWY_MIN(kTile, candidates.size() - first);
    load_columns(rows, candidates.subspan(first, n), kTile, row,
                 tiles.data() + first * static_cast<size_t>(rows.head_dim));
  }
}

void nearest_rows_impl(const RowVectors& rows, std::span<const int> slots,
                       std::span<const float> slot_scales, std::span<const int> candidates,
                       std::span<const float> candidate_scales, std::span<Nearest> nearest,
                       Scratch& scratch) {
  const FloatTag d;
  const IntTag di;
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(rows.head_dim);
  const size_t row_bytes = dim * cache::element_bytes(rows.type);
  const size_t panel = HWY_MIN(kPanel, (candidates.size() + kTile - 1) / kTile * kTile);
  float* const row = scratch.take<float>(padded_dim(rows.head_dim)).data();
  const std::span<float> tiles = scratch.take<float>(panel * dim);
  const std::span<float> scales = scratch.take<float>(panel);
  float* const x = scratch.take_filled(kRowBlock * dim, 0.0F).data();
  std::ranges::fill(nearest, Nearest{});
  for (size_t first = 0; first < candidates.size(); first += panel) {
    const size_t n = HWY_MIN(panel, candidates.size() - first);
    load_tiles(rows, candidates.subspan(first, n), row, tiles);
    std::ranges::copy(candidate_scales.subspan(first, n), scales.begin());
    // Nothing is greater than NaN, which padding gets.
    std::ranges::fill(scales.subspan(n), std::numeric_limits<float>::quiet_NaN());
    for (size_t block = 0; block < slots.size(); block += kRowBlock) {
      const size_t n_rows = HWY_MIN(kRowBlock, slots.size() - block);
      for (size_t i = 0; i < n_rows; ++i) {
        load_rows(rows.type, rows.elements + static_cast<size_t>(slots[block + i]) * row_bytes, 1,
                  rows.head_dim, row);
        for (size_t a = 0; a < dim; ++a) {
          x[i * dim + a] = row[a] * slot_scales[block + i];
        }
      }
      for (size_t i = 0; i < n_rows; i += kRowsAtOnce) {
        Best best[kRowsAtOnce];
        std::ranges::fill(best, Best{hn::Set(d, kMinusInfinity), hn::Set(di, kNoRow)});
        for (size_t tile = 0; tile < n; tile += kTile) {
          compare(x + i * dim, tiles.data() + tile * dim, dim, scales.data() + tile,
                  static_cast<int>(first + tile), best);
        }
        for (size_t j = i; j < HWY_MIN(i + kRowsAtOnce, n_rows); ++j) {
          reduce(best[j - i], nearest[block + j]);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(nearest_rows_impl);

void nearest_rows(const RowVectors& rows, std::span<const int> slots,
                  std::span<const float> slot_scales, std::span<const int> candidates,
                  std::span<const float> candidate_scales, std::span<Nearest> nearest,
                  Scratch& scratch) {
  WINNOW_CHECK(slot_scales.size() == slots.size() && nearest.size() == slots.size() &&
               candidate_scales.size() == candidates.size());
  HWY_DYNAMIC_DISPATCH(nearest_rows_impl)
  (rows, slots, slot_scales, candidates, candidate_scales, nearest, scratch);
}

}  // namespace winnow::kernels
#endif
