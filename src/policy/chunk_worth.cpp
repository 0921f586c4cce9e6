#include "policy/chunk_worth.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/row_kernels.h"

namespace winnow::policy {
namespace {

// To mass [slots]: what the rows of the chunk that begins at position `begin`, and is not full, get of the queries that are
// remembered.
void ask_last_chunk(const LayerView& layer, int kv_head, const kernels::ChunkAttention& how,
                    int begin, const kernels::ChunkSlots& slots, Scratch& scratch,
                    std::span<int64_t> mass) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  const kernels::QueryWindow& queries = *layer.queries;
  const int group = layer.attention.gqa_group_size();
  const auto token = static_cast<size_t>(group) * static_cast<size_t>(rows.head_dim);
  const int first_pos = std::max(begin, queries.begin_pos(layer.layer));
  const int n_tokens = queries.end_pos(layer.layer) - first_pos;
  const std::span<float> q = scratch.take<float>(static_cast<size_t>(n_tokens) * token);
  for (int i = 0; i < n_tokens; ++i) {
    std::copy_n(queries.query(layer.layer, kv_head * group, first_pos + i), token,
                q.data() + static_cast<size_t>(i) * token);
  }
  const std::span<float> memory = scratch.take<float>(kernels::chunk_scratch_floats(rows.head_dim));
  std::ranges::fill(mass, 0);
  kernels::add_chunk_attention(
      rows, slots, {.q = q.data(), .token_stride = token, .n_heads = group, .n_tokens = n_tokens},
      how.is_scaled ? layer.attention.scale : 1.0F, memory.data(), mass);
}

// In place: the mean of each and its neighbours, of three, where there are zeros beyond the ends and for what is no number.
void pool_three(std::span<float> x) {
  const auto number = [](float each) { return std::isnan(each) ? 0.0F : each; };
  float before = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const float here = x[i];
    const float after = i + 1 < x.size() ? number(x[i + 1]) : 0.0F;
    x[i] = std::isnan(here) ? here : (before + here + after) / 3;
    before = number(here);
  }
}

}  // namespace

void chunk_worth(const LayerView& layer, int kv_head, const kernels::ChunkAttention& how,
                 std::span<const int> slots, Scratch& scratch, std::span<float> worth) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  WINNOW_CHECK(rows.scores != nullptr && worth.size() == slots.size());
  const int begin = layer.queries->end_pos(layer.layer) / how.length * how.length;
  const kernels::ChunkSlots last = kernels::chunk_slots(rows, begin, how.length);
  const std::span<int64_t> mass =
      scratch.take<int64_t>(static_cast<size_t>(last.last - last.first));
  if (!mass.empty()) {
    ask_last_chunk(layer, kv_head, how, begin, last, scratch, mass);
  }
  const std::span<float> norms = scratch.take<float>(slots.size());
  kernels::squared_norms(kernels::values_of(rows), slots, norms, scratch);
  const auto group = static_cast<float>(layer.attention.gqa_group_size());
  for (size_t i = 0; i < slots.size(); ++i) {
    const int slot = slots[i];
    const float received =
        slot < last.first
            ? rows.scores[slot]
            : static_cast<float>(static_cast<double>(mass[static_cast<size_t>(slot - last.first)]) /
                                 kernels::kMassScale);
    worth[i] = received / group * std::sqrt(norms[i]);
  }
  pool_three(worth);
}

}  // namespace winnow::policy
