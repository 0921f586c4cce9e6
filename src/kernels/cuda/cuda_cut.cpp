// Cutting heads where their rows lie: scores, selection and moves one after the other on the GPU; the host hears which rows went.

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "kernels/cuda/cuda_rows.h"

namespace winnow::kernels::cuda {

void CudaRows::start_cut(const RowFormula& formula, std::span<const DeviceCut> heads, int end_pos,
                         int n_positions) {
  if (last_cut_.is_under_way) {  // whoever started it has given up
    finish_cut();
  }
  settle();
  cut_begins_.record(stream_);
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

  cut_ends_.record(stream_);

  last_cut_ = {.n_heads = n_heads,
               .are_lost = most_lost < most_kept,
               .stride = static_cast<size_t>(std::min(most_lost, most_kept)),
               .is_under_way = true};
  const int32_t* told = kept.slots;
  if (last_cut_.are_lost) {
    int32_t* const lost = reserve(lost_, n_heads * last_cut_.stride);
    find_lost(to_move, device_quotas, kept, lost, last_cut_.stride, stream_);
    told = lost;
  }
  const size_t slots_bytes = n_heads * last_cut_.stride * sizeof(int32_t);
  const size_t told_bytes = slots_bytes + n_heads * sizeof(int32_t);
  if (told_ == nullptr || told_->bytes() < told_bytes) {
    told_.reset();
    told_ = std::make_unique<HostBuffer>(2 * told_bytes);
  }
  start_copy_from_device(told_->data(), told, slots_bytes, stream_);
  start_copy_from_device(told_->data() + slots_bytes, n_nan, n_heads * sizeof(int32_t), stream_);
  cut_is_told_.record(stream_);
  release_zones();
}

CutSlots CudaRows::finish_cut() {
  WINNOW_CHECK(last_cut_.is_under_way);
  last_cut_.is_under_way = false;
  cut_is_told_.wait();
  const auto* const slots = reinterpret_cast<const int32_t*>(told_->data());
  const int32_t* const n_nan = slots + last_cut_.n_heads * last_cut_.stride;
  constexpr double kUsPerMs = 1000;
  return {.are_lost = last_cut_.are_lost,
          .slots = slots,
          .stride = last_cut_.stride,
          .n_nan = std::accumulate(n_nan, n_nan + last_cut_.n_heads, int64_t{0}),
          .ms = cut_ends_.us_since(cut_begins_) / kUsPerMs};
}

}  // namespace winnow::kernels::cuda
