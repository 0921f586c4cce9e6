#include "engine/replay_scores.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <string>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/attention_peaks.h"
#include "kernels/row_kernels.h"

namespace winnow::engine {
namespace {

// The first slot of a position that is not below `pos`.
int slot_of(const cache::HeadRows& rows, int pos) {
  return static_cast<int>(std::lower_bound(rows.positions, rows.positions + rows.n, pos) -
                          rows.positions);
}

// Of what a token's query is a projection of; 0 where there is none.
float inverse_norm(const kernels::LayerActivations& activations, int token) {
  const float* const x =
      activations.inputs + static_cast<std::ptrdiff_t>(token) * activations.n_embd;
  double square = 0;
  for (int i = 0; i < activations.n_embd; ++i) {
    square += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  }
  return square > 0 && std::isfinite(square) ? static_cast<float>(1 / std::sqrt(square)) : 0.0F;
}

}  // namespace

ReplayScores::ReplayScores(const cache::Cache& cache, const kernels::AttendShape& attention,
                           const Part& part, int n_threads)
    : cache_(cache),
      attention_(attention),
      part_(part),
      n_heads_(n_peak_heads(cache.shape(), attention.n_heads, part)),
      threads_(static_cast<size_t>(n_threads)),
      mutexes_(new std::mutex[static_cast<size_t>(n_heads_)]) {
  try {
    const cache::CacheShape& shape = cache.shape();
    const auto n_rows = static_cast<size_t>(n_most_rows(part));
    for (Rows& rows : threads_) {
      rows.keys.resize(n_rows * shape.key_bytes());
      rows.positions.resize(n_rows);
      rows.peaks.resize(n_scored());
      rows.factors.resize(part.weighs_outputs ? static_cast<size_t>(part.n_tokens) : 0);
      rows.scratch.resize(kernels::peaks_scratch_floats(shape.head_dim, n_most_rows(part)) +
                          kLineBytes / sizeof(float));
    }
    peaks_.resize(static_cast<size_t>(shape.n_layers) * static_cast<size_t>(n_heads_) * n_scored());
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted,
                "no memory to find the scores of a replay (" +
                    format_bytes(bytes(cache.shape(), attention.n_heads, part, n_threads)) +
                    "); a smaller replay_chunk needs less");
  }
}

size_t ReplayScores::bytes(const cache::CacheShape& shape, int n_heads, const Part& part,
                           int n_threads) {
  const auto n_rows = static_cast<size_t>(n_most_rows(part));
  const auto n_scored = static_cast<size_t>(part.end - part.begin);
  const size_t floats = n_scored + (part.weighs_outputs ? static_cast<size_t>(part.n_tokens) : 0) +
                        kernels::peaks_scratch_floats(shape.head_dim, n_most_rows(part)) +
                        kLineBytes / sizeof(float);
  return static_cast<size_t>(n_threads) *
             (n_rows * (shape.key_bytes() + sizeof(int32_t)) + floats * sizeof(float)) +
         static_cast<size_t>(shape.n_layers) *
             static_cast<size_t>(n_peak_heads(shape, n_heads, part)) * n_scored * sizeof(float);
}

std::span<float> ReplayScores::peaks_of(int layer, int head) {
  const size_t index =
      static_cast<size_t>(layer) * static_cast<size_t>(n_heads_) + static_cast<size_t>(head);
  return std::span(peaks_).subspan(index * n_scored(), n_scored());
}

// The sinks, the part's rows and those of its replay so far.
void ReplayScores::gather(const cache::HeadRows& from, Rows& rows) const noexcept {
  const size_t key_bytes = cache_.shape().key_bytes();
  rows.n = 0;
  const auto take = [&](int first, int n) {
    const auto to = static_cast<size_t>(rows.n);
    std::memcpy(rows.keys.data() + to * key_bytes,
                from.keys + static_cast<size_t>(first) * key_bytes,
                static_cast<size_t>(n) * key_bytes);
    std::copy_n(from.positions + first, n, rows.positions.data() + to);
    rows.n += n;
  };
  const int n_sinks = slot_of(from, std::min(part_.n_sink, part_.begin));
  for (int slot = 0; slot < n_sinks; ++slot) {  // rows that are gone may still take up slots
    if (from.hidden == nullptr || from.hidden[slot] == cache::kVisible) {
      take(slot, 1);
    }
  }
  rows.first_scored = rows.n;
  const int first = slot_of(from, part_.begin);
  take(first, slot_of(from, part_.end) - first);
  const int first_fed = slot_of(from, part_.first_pos);
  take(first_fed, from.n - first_fed);
}

void ReplayScores::observe(const kernels::LayerActivations& activations, int thread,
                           int n_threads) noexcept {
  if (cache_.shape().swa_window(activations.layer) > 0) {
    return;
  }
  const int group = attention_.n_heads / n_heads_;  // heads whose peaks are not told apart
  const int n_lanes = activations.n_tokens * group;
  const int n_tile = kernels::prompt_tile_lanes();
  const int n_tiles = (n_lanes + n_tile - 1) / n_tile;
  const int64_t n_items = int64_t{n_tiles} * n_heads_;
  const int64_t end = n_items * (thread + 1) / n_threads;
  Rows& rows = threads_[static_cast<size_t>(thread)];
  for (int i = 0; part_.weighs_outputs && i < activations.n_tokens; ++i) {
    rows.factors[static_cast<size_t>(i)] = inverse_norm(activations, i);
  }
  for (int64_t item = n_items * thread / n_threads; item < end;) {
    const auto head = static_cast<int>(item / n_tiles);
    const int kv_head = head * group / attention_.gqa_group_size();
    cache::HeadRows attended = cache_.rows(activations.layer, kv_head);
    gather(attended, rows);
    attended.keys = rows.keys.data();
    attended.positions = rows.positions.data();
    attended.hidden = nullptr;
    attended.n = rows.n;
    attended.n_hidden = 0;
    std::ranges::fill(rows.peaks, 0.0F);
    const int64_t end_of_head = std::min(end, int64_t{n_tiles} * (head + 1));
    for (; item < end_of_head; ++item) {
      const int first_lane = static_cast<int>(item % n_tiles) * n_tile;
      kernels::raise_attention_peaks(
          attended,
          {.q = activations.query(0, head * group),
           .out = nullptr,
           .token_stride =
               static_cast<size_t>(attention_.n_heads) * static_cast<size_t>(attention_.head_dim),
           .gqa_group_size = group,
           .swa_window = 0,
           .first_pos = activations.first_pos,
           .first_lane = first_lane,
           .n_lanes = std::min(n_tile, n_lanes - first_lane)},
          attention_.scale, part_.weighs_outputs ? rows.factors.data() : nullptr, rows.first_scored,
          rows.peaks, align_to_line(rows.scratch.data()));
    }
    const std::lock_guard lock(mutexes_[static_cast<size_t>(head)]);
    const std::span<float> peaks = peaks_of(activations.layer, head);
    std::transform(rows.peaks.begin(), rows.peaks.end(), peaks.begin(), peaks.begin(),
                   [](float a, float b) { return std::max(a, b); });
  }
}

// Multiplies the peaks of a query head with ||W v|| of each row, W = its columns of the output projection: the square of that
// is a quadratic form, vᵀ (Wᵀ W) v.
void ReplayScores::weigh(const policy::OutputWeights& weights, int layer, int head,
                         Scratch& scratch) {
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(attention_.head_dim);
  const std::span<float> columns = scratch.take<float>(static_cast<size_t>(weights.n_embd()) * dim);
  weights.read(layer,
               {.first_row = 0,
                .n_rows = weights.n_embd(),
                .first_column = head * attention_.head_dim,
                .n_columns = attention_.head_dim},
               columns.data());
  const std::span<double> sums = scratch.take_filled<double>(dim * dim, 0.0);
  for (size_t row = 0; row < columns.size(); row += dim) {
    for (size_t a = 0; a < dim; ++a) {
      const auto scale = static_cast<double>(columns[row + a]);
      for (size_t b = a; b < dim; ++b) {
        sums[a * dim + b] += scale * static_cast<double>(columns[row + b]);
      }
    }
  }
  const std::span<float> upper = scratch.take_filled<float>(dim * dim, 0.0F);
  for (size_t a = 0; a < dim; ++a) {
    for (size_t b = a; b < dim; ++b) {
      upper[a * dim + b] = static_cast<float>(a == b ? sums[a * dim + b] : 2 * sums[a * dim + b]);
    }
  }
  const cache::HeadRows rows = cache_.rows(layer, head / attention_.gqa_group_size());
  const std::span<int> slots = scratch.take<int>(n_scored());
  std::iota(slots.begin(), slots.end(), slot_of(rows, part_.begin));
  const std::span<float> squares = scratch.take<float>(n_scored());
  kernels::quadratic_form(kernels::values_of(rows), slots,
                          {.linear = scratch.take_filled<float>(dim, 0.0F), .upper = upper},
                          squares, scratch);
  const std::span<float> peaks = peaks_of(layer, head);
  for (size_t i = 0; i < peaks.size(); ++i) {
    peaks[i] *= std::sqrt(std::max(squares[i], 0.0F));
  }
}

void ReplayScores::write(const policy::OutputWeights& weights, kernels::ParallelFor& parallel,
                         cache::Cache& cache) {
  const cache::CacheShape& shape = cache.shape();
  std::vector<Scratch> scratch(static_cast<size_t>(parallel.n_threads()));
  const int n_told_apart = n_heads_ / shape.n_kv_heads;
  parallel.run(shape.n_layers * shape.n_kv_heads, [&](int item, int thread) {
    const int layer = item / shape.n_kv_heads;
    const int kv_head = item % shape.n_kv_heads;
    if (shape.swa_window(layer) > 0) {
      return;
    }
    const cache::HeadRows rows = cache.rows(layer, kv_head);
    const int first = slot_of(rows, part_.begin);
    WINNOW_CHECK(slot_of(rows, part_.end) - first == part_.end - part_.begin);
    float* const scores = cache.scores(layer, kv_head) + first;
    std::fill_n(scores, n_scored(), 0.0F);
    for (int head = kv_head * n_told_apart; head < (kv_head + 1) * n_told_apart; ++head) {
      if (part_.weighs_outputs) {
        weigh(weights, layer, head, scratch[static_cast<size_t>(thread)]);
      }
      const std::span<const float> peaks = peaks_of(layer, head);
      std::transform(peaks.begin(), peaks.end(), scores, scores,
                     [](float a, float b) { return std::max(a, b); });
    }
  });
}

}  // namespace winnow::engine
