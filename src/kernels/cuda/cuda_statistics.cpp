// What is read from beside the rows of a cache on a GPU, and what its last queries attend to.

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/error.h"
#include "kernels/cuda/cuda_rows.h"

namespace winnow::kernels::cuda {

Heads CudaRows::upload_heads(int first_layer, std::span<const int> n_slots, size_t stride) {
  std::vector<HeadArrays> from;
  for (size_t i = 0; i < n_slots.size(); ++i) {
    const auto n_kv_heads = static_cast<size_t>(shape_.n_kv_heads);
    WINNOW_CHECK(static_cast<size_t>(n_slots[i]) <= stride);
    from.push_back(arrays(first_layer + static_cast<int>(i / n_kv_heads),
                          static_cast<int>(i % n_kv_heads), n_slots[i]));
  }
  HeadArrays* const heads = reserve(moved_, from.size());
  upload(heads, from.data(), from.size() * sizeof(HeadArrays), stream_);
  return {heads, static_cast<int>(from.size()), static_cast<int>(stride)};
}

void CudaRows::read_scores(int first_layer, std::span<const int> n_slots, size_t stride,
                           std::span<float> scores) {
  settle();
  WINNOW_CHECK(scores.size() == n_slots.size() * stride);
  if (scores.empty()) {
    return;
  }
  float* const to = reserve(gathered_, scores.size());
  gather_scores(upload_heads(first_layer, n_slots, stride), to, stride, stream_);
  stream_.wait();
  copy_from_device(scores.data(), to, scores.size_bytes());
}

void CudaRows::read_mass(int first_layer, std::span<const int> n_slots, size_t stride,
                         std::span<int64_t> mass) {
  settle();
  WINNOW_CHECK(mass.size() == n_slots.size() * stride && shape_.stores_mass);
  if (mass.empty()) {
    return;
  }
  long long* const to = reserve(gathered_mass_, mass.size());
  gather_mass(upload_heads(first_layer, n_slots, stride), to, stride, stream_);
  stream_.wait();
  copy_from_device(mass.data(), to, mass.size_bytes());
}

void CudaRows::watch_queries(const QueryWindow::Shape& shape) {
  if (queries_ && watched_.n_queries >= shape.n_queries) {
    return;
  }
  const auto n_watched = static_cast<size_t>(std::ranges::count(shape.is_watched, true));
  stream_.wait();
  queries_.emplace(n_watched * static_cast<size_t>(shape.n_queries) *
                   static_cast<size_t>(shape.n_heads) * static_cast<size_t>(shape.head_dim));
  watched_ = shape;
}

float* CudaRows::ring(int layer) const {
  if (!queries_ || !watched_.is_watched[static_cast<size_t>(layer)]) {
    return nullptr;
  }
  const auto ordinal = static_cast<size_t>(
      std::count(watched_.is_watched.begin(), watched_.is_watched.begin() + layer, true));
  return queries_->data() + ordinal * static_cast<size_t>(watched_.n_queries) *
                                static_cast<size_t>(watched_.n_heads) *
                                static_cast<size_t>(watched_.head_dim);
}

void CudaRows::read_queries(int layer, std::span<float> queries) {
  const float* const from = ring(layer);
  if (from != nullptr) {
    stream_.wait();
    copy_from_device(queries.data(), from, queries.size_bytes());
  }
}

void CudaRows::read_window_mass(const WindowQueries& queries, std::span<const cache::HeadRows> rows,
                                size_t stride, std::span<int64_t> mass) {
  settle();
  WINNOW_CHECK(mass.size() ==
               rows.size() * static_cast<size_t>(attention_.gqa_group_size) * stride);
  if (mass.empty()) {
    return;
  }
  long long* const to = reserve(gathered_mass_, mass.size());
  compute_window_mass(queries, rows, stride, to);
  stream_.wait();
  copy_from_device(mass.data(), to, mass.size_bytes());
}

// mass [n_heads, stride], a query head after the other.
void CudaRows::compute_window_mass(const WindowQueries& queries,
                                   std::span<const cache::HeadRows> rows, size_t stride,
                                   long long* mass) {
  const float* const q = ring(queries.layer);
  WINNOW_CHECK(q != nullptr && queries.n_queries <= watched_.n_queries);
  const auto group = static_cast<size_t>(attention_.gqa_group_size);
  const auto head_dim = static_cast<size_t>(shape_.head_dim);
  const int n_parts = (queries.first_pos + queries.n_queries - 1) / kSumsPart + 1;
  const size_t n_sums =
      static_cast<size_t>(n_parts) * static_cast<size_t>(queries.n_queries);  // of a query head
  std::vector<uint8_t> marks;
  for (const cache::HeadRows& head : rows) {
    if (head.hidden != nullptr) {
      marks.insert(marks.end(), head.hidden, head.hidden + head.n);
    }
  }
  uint8_t* next_mark = marks.empty() ? nullptr : reserve(hidden_, marks.size());
  if (!marks.empty()) {
    upload(next_mark, marks.data(), marks.size(), stream_);
  }
  WeightSum* const sums = reserve(sums_, rows.size() * group * n_sums);
  std::vector<PromptHead> prompts;
  std::vector<MassHead> masses;
  int most_rows = 0;
  for (size_t kv_head = 0; kv_head < rows.size(); ++kv_head) {
    const cache::HeadRows& held = rows[kv_head];
    const HeadArrays of_head = arrays(queries.layer, static_cast<int>(kv_head), held.n);
    const uint8_t* const hidden = held.hidden == nullptr ? nullptr : next_mark;
    next_mark += held.hidden == nullptr ? 0 : held.n;
    most_rows = std::max(most_rows, held.n);
    masses.push_back({.keys = of_head.keys,
                      .positions = of_head.positions,
                      .hidden = hidden,
                      .q = q + kv_head * group * head_dim,
                      .sums = sums + kv_head * group * n_sums,
                      .mass = mass + kv_head * group * stride,
                      .n = held.n,
                      .n_tokens = queries.n_queries,
                      .first_pos = queries.first_pos,
                      .n_ring = watched_.n_queries,
                      .decay = 0.0F});
    for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      prompts.push_back({.keys = of_head.keys,
                         .values = of_head.values,
                         .positions = of_head.positions,
                         .hidden = hidden,
                         .n_nonfinite_values = nullptr,
                         .q = q + head * head_dim,
                         .out = nullptr,
                         .n = held.n,
                         .n_tokens = queries.n_queries,
                         .first_pos = queries.first_pos,
                         .swa_window = 0,
                         .sums = sums + head * n_sums,
                         .n_ring = watched_.n_queries});
    }
  }
  PromptHead* const window_heads = reserve(window_heads_, prompts.size());
  MassHead* const mass_heads = reserve(mass_heads_, masses.size());
  upload(window_heads, prompts.data(), prompts.size() * sizeof(PromptHead), stream_);
  upload(mass_heads, masses.data(), masses.size() * sizeof(MassHead), stream_);
  sum_weights(attention_, window_heads, static_cast<int>(prompts.size()), queries.n_queries,
              n_parts, stream_);
  const auto n = static_cast<int>(masses.size());
  std::byte* const images =
      reserve(images_, mass_image_bytes(attention_, n, queries.n_queries, /*is_window=*/true));
  sum_window(attention_,
             {.heads = mass_heads,
              .n = n,
              .most_tokens = queries.n_queries,
              .most_rows = most_rows,
              .images = images},
             n_sums, stride, stream_);
}

}  // namespace winnow::kernels::cuda
