#include "kernels/end_aligned.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/memory.h"
#include "base/scratch.h"
#include "kernels/blocks.h"

namespace winnow::kernels {
namespace {

constexpr size_t kAlignFloats = kLineBytes / sizeof(float);

// For heads of up to n_slots. Hidden slots stand where the next visible one does, so a block may have more slots than
// places; room for the weights of all of them, as for column mass, is enough for any block.
size_t scratch_floats(int head_dim, int n_slots) {
  const size_t floats = prompt_scratch_floats(head_dim, std::max(n_slots, 1), std::max(n_slots, 1));
  return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

}  // namespace

void EndAlignedAttention::set_rows(std::span<const Slice> slices, int layer) {
  heads_.clear();
  items_.clear();
  n_tokens_ = 0;
  try {
    size_t n_all_slots = 0;
    int n_most_slots = 0;
    for (const Slice& slice : slices) {
      WINNOW_CHECK(slice.is_prompt && slice.first_token == n_tokens_);
      n_tokens_ += slice.n_tokens;
      n_most_slots =
          std::max(n_most_slots, cache::Cache::most_slots(slice.cache->shape().max_rows));
      for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
        n_all_slots += static_cast<size_t>(slice.cache->rows(layer, kv_head).n);
      }
    }
    places_.resize(n_all_slots);
    thread_floats_ = scratch_floats(shape_.head_dim, n_most_slots);
    memory_.resize(
        std::max(memory_.size(), kAlignFloats + thread_floats_ * static_cast<size_t>(n_threads_)));
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kResourceExhausted, "no memory for attention in legacy order");
  }
  std::span<int32_t> places(places_);
  for (const Slice& slice : slices) {
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = slice.cache->rows(layer, kv_head);
      const auto n_slots = static_cast<size_t>(rows.n);
      add_head(slice, kv_head, rows, places.first(n_slots));
      places = places.subspan(n_slots);
    }
  }
}

void EndAlignedAttention::add_head(const Slice& slice, int kv_head, const cache::HeadRows& rows,
                                   std::span<int32_t> places) {
  int n_visible = 0;
  for (size_t slot = 0; slot < places.size(); ++slot) {
    places[slot] = n_visible;
    n_visible += rows.hidden == nullptr || rows.hidden[slot] == cache::kVisible ? 1 : 0;
  }
  Head head{.first_token = slice.first_token,
            .n_tokens = slice.n_tokens,
            .kv_head = kv_head,
            .first_place = n_visible - slice.n_tokens,
            .rows = rows};
  head.rows.positions = places.data();
  const auto index = static_cast<int>(heads_.size());
  heads_.push_back(head);

  // No tile has tokens of two block lengths.
  const int group = shape_.gqa_group_size();
  const int tile = prompt_tile_lanes();
  for (int token = std::max(-head.first_place, 0); token < slice.n_tokens;) {
    const int length = block_length(head.first_place + token);
    int end = token + 1;
    while (end < slice.n_tokens && block_length(head.first_place + end) == length) {
      ++end;
    }
    for (int lane = token * group; lane < end * group; lane += tile) {
      items_.push_back(
          {.head = index, .first_lane = lane, .n_lanes = std::min(tile, end * group - lane)});
    }
    token = end;
  }
}

size_t EndAlignedAttention::scratch_bytes() const {
  return memory_.size() * sizeof(float) + places_.size() * sizeof(int32_t);
}

size_t EndAlignedAttention::measure_scratch(int n_rows) const {
  const int n_slots = cache::Cache::most_slots(n_rows);
  return (kAlignFloats +
          scratch_floats(shape_.head_dim, n_slots) * static_cast<size_t>(n_threads_)) *
             sizeof(float) +
         static_cast<size_t>(n_slots) * static_cast<size_t>(shape_.n_kv_heads) * sizeof(int32_t);
}

void EndAlignedAttention::take_own_values(const Head& head, const ggml_tensor* v,
                                          ggml_tensor* out) const noexcept {
  const auto dim = static_cast<size_t>(shape_.head_dim);
  const auto group = static_cast<size_t>(shape_.gqa_group_size());
  const auto kv_head = static_cast<size_t>(head.kv_head);
  for (int token = 0; token < std::min(-head.first_place, head.n_tokens); ++token) {
    const auto row = static_cast<size_t>(head.first_token + token);
    const float* const value = static_cast<const float*>(v->data) +
                               (row * static_cast<size_t>(shape_.n_kv_heads) + kv_head) * dim;
    for (size_t i = 0; i < group; ++i) {
      float* const to = static_cast<float*>(out->data) +
                        (row * static_cast<size_t>(shape_.n_heads) + kv_head * group + i) * dim;
      std::copy_n(value, dim, to);
    }
  }
}

void EndAlignedAttention::attend(const ggml_tensor* q, const ggml_tensor* v, ggml_tensor* out,
                                 int thread, int n_threads) noexcept {
  const auto dim = static_cast<size_t>(shape_.head_dim);
  const size_t stride = dim * static_cast<size_t>(shape_.n_heads);
  float* const scratch =
      align_to_line(memory_.data()) + static_cast<size_t>(thread) * thread_floats_;
  for (size_t i = static_cast<size_t>(thread); i < heads_.size();
       i += static_cast<size_t>(n_threads)) {
    take_own_values(heads_[i], v, out);
  }
  for (size_t i = static_cast<size_t>(thread); i < items_.size();
       i += static_cast<size_t>(n_threads)) {
    const Item& item = items_[i];
    const Head& head = heads_[static_cast<size_t>(item.head)];
    const size_t first = static_cast<size_t>(head.first_token) * stride +
                         static_cast<size_t>(head.kv_head * shape_.gqa_group_size()) * dim;
    attend_prompt(head.rows,
                  {.q = static_cast<const float*>(q->data) + first,
                   .out = static_cast<float*>(out->data) + first,
                   .token_stride = stride,
                   .gqa_group_size = shape_.gqa_group_size(),
                   .swa_window = 0,
                   .first_pos = head.first_place,
                   .first_lane = item.first_lane,
                   .n_lanes = item.n_lanes},
                  shape_.scale, scratch);
  }
  if (thread == 0) {  // padding
    const auto n_rows = static_cast<size_t>(out->ne[1]);
    const auto used = static_cast<size_t>(n_tokens_);
    std::memset(static_cast<std::byte*>(out->data) + used * out->nb[1], 0,
                (n_rows - used) * out->nb[1]);
  }
}

ggml_tensor* build_end_aligned(ggml_context* ctx, EndAlignedAttention* attention, ggml_tensor* q,
                               ggml_tensor* v) {
  WINNOW_CHECK(ggml_is_contiguous(q) && ggml_is_contiguous(v));
  std::array<ggml_tensor*, 2> sources{q, v};
  const auto work = [](ggml_tensor* dst, int thread, int n_threads, void* user_data) {
    static_cast<EndAlignedAttention*>(user_data)->attend(dst->src[0], dst->src[1], dst, thread,
                                                         n_threads);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, q->ne[0] * q->ne[1], q->ne[2], 1, 1, sources.data(),
                        sources.size(), work, GGML_N_TASKS_MAX, attention);
}

}  // namespace winnow::kernels
