// Cutting heads where their rows lie: scores, selection and moves one after the other on the GPU; the host hears which rows went.

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/cuda_rows.h"

namespace winnow::kernels::cuda {

CutSlots CudaRows::cut(const RowFormula& formula, std::span<const DeviceCut> heads, int end_pos,
                       int n_positions) {
  settle();
  const auto n_heads = heads.size();
  int most_rows = 0;
  int most_kept = 0;
  int most_lost = 0;
  for (const DeviceCut& head : heads) {
    const int n_kept = std::min(head.n, head.n_keep);
    most_rows = std::max(most_rows, head.n);
    most_kept = std::max(most_kept, n_kept);
    most_lost = std::max(most_lost, head.n - n_kept);
  }
  const auto stride = static_cast<size_t>(most_rows);
  const auto group = static_cast<size_t>(attention_.gqa_group_size);
  const WindowQueries queries{
      .layer = 0, .first_pos = end_pos - formula.n_asked(), .n_queries = formula.n_asked()};
  long long* const window =
      queries.n_queries > 0 ? reserve(gathered_mass_, n_heads * group * stride) : nullptr;
  float* const scores = reserve(gathered_, n_heads * stride);
  std::vector<HeadArrays> moved;
  std::vector<HeadArrays> scored;
  std::vector<WorthInputs> inputs;
  std::vector<Quota> quotas;
  for (const DeviceCut& head : heads) {
    const size_t i = moved.size();
    moved.push_back(arrays(head.layer, head.kv_head, head.n));
    scored.push_back(moved.back());
    scored.back().scores = scores + i * stride;
    inputs.push_back({.window = window == nullptr ? nullptr : window + i * group * stride,
                      .window_pos = queries.first_pos,
                      .n_positions = n_positions});
    quotas.push_back({.n_keep = head.n_keep, .n_first = head.n_first, .n_last = head.n_last});
  }
  HeadArrays* const moved_heads = reserve(moved_, n_heads);
  HeadArrays* const scored_heads = reserve(scored_, n_heads);
  WorthInputs* const of_heads = reserve(inputs_, n_heads);
  Quota* const device_quotas = reserve(quotas_, n_heads);
  int32_t* const n_nan = reserve(n_nan_, n_heads);
  const Slots kept{reserve(slots_, n_heads * static_cast<size_t>(most_kept)),
                   static_cast<size_t>(most_kept)};
  upload(moved_heads, moved.data(), n_heads * sizeof(HeadArrays), stream_);
  upload(scored_heads, scored.data(), n_heads * sizeof(HeadArrays), stream_);
  upload(of_heads, inputs.data(), n_heads * sizeof(WorthInputs), stream_);
  upload(device_quotas, quotas.data(), n_heads * sizeof(Quota), stream_);
  fill_bytes(n_nan, 0, n_heads * sizeof(int32_t), stream_);

  const auto n_kv_heads = static_cast<size_t>(shape_.n_kv_heads);
  for (size_t first = 0; window != nullptr && first < n_heads; first += n_kv_heads) {
    std::vector<cache::HeadRows> rows(n_kv_heads);
    for (size_t i = 0; i < n_kv_heads; ++i) {
      rows[i].n = heads[first + i].n;
    }
    compute_window_mass({heads[first].layer, queries.first_pos, queries.n_queries}, rows, stride,
                        window + first * group * stride);
  }
  const Heads to_move{moved_heads, static_cast<int>(n_heads), most_rows};
  const Heads to_score{scored_heads, static_cast<int>(n_heads), most_rows};
  score_rows(formula, attention_.gqa_group_size, to_move, of_heads, stride, scores, stride,
             stream_);
  select(to_score, device_quotas, kept, n_nan, stream_);
  compact({shape_.head_dim, shape_.key_type, shape_.value_type}, to_move, device_quotas, kept,
          stream_);
  for (const DeviceCut& head : heads) {
    come_home(head.layer, head.kv_head, std::min(head.n, head.n_keep));
  }

  CutSlots slots{.are_lost = most_lost < most_kept,
                 .slots = nullptr,
                 .stride = static_cast<size_t>(std::min(most_lost, most_kept)),
                 .n_nan = 0};
  const int32_t* told = kept.slots;
  if (slots.are_lost) {
    int32_t* const lost = reserve(lost_, n_heads * slots.stride);
    find_lost(to_move, device_quotas, kept, lost, slots.stride, stream_);
    told = lost;
  }
  std::vector<int32_t> n_nan_of_heads(n_heads);
  stream_.wait();
  cut_slots_.resize(n_heads * slots.stride);
  copy_from_device(cut_slots_.data(), told, cut_slots_.size() * sizeof(int32_t));
  copy_from_device(n_nan_of_heads.data(), n_nan, n_heads * sizeof(int32_t));
  for (const int32_t n : n_nan_of_heads) {
    slots.n_nan += n;
  }
  slots.slots = cut_slots_.data();
  release_zones();
  return slots;
}

}  // namespace winnow::kernels::cuda
