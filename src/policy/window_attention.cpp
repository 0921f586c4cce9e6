#include "policy/window_attention.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/blocks.h"

namespace winnow::policy {

int n_remembered(const LayerView& layer, int n_queries) {
  return std::min(n_queries,
                  layer.queries->end_pos(layer.layer) - layer.queries->begin_pos(layer.layer));
}

void window_mass(const LayerView& layer, int kv_head, GroupHeads heads, int n_queries,
                 Scratch& scratch, std::span<int64_t> mass) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  const auto token = static_cast<size_t>(heads.n) * static_cast<size_t>(rows.head_dim);
  const int first_head = kv_head * layer.attention.gqa_group_size() + heads.first;
  const int end_pos = layer.queries->end_pos(layer.layer);
  const int first_pos = end_pos - n_queries;
  WINNOW_CHECK(std::ssize(mass) == rows.n && n_queries <= n_remembered(layer, n_queries));

  const std::span<float> q = scratch.take<float>(static_cast<size_t>(n_queries) * token);
  for (int i = 0; i < n_queries; ++i) {
    std::copy_n(layer.queries->query(layer.layer, first_head, first_pos + i), token,
                q.data() + static_cast<size_t>(i) * token);
  }
  constexpr size_t kAlignFloats = 16;
  const size_t n_floats = kernels::prompt_scratch_floats(rows.head_dim, end_pos, rows.n);
  float* memory = scratch.take<float>(n_floats + kAlignFloats).data();
  while (reinterpret_cast<uintptr_t>(memory) % (kAlignFloats * sizeof(float)) != 0) {
    ++memory;
  }

  std::fill(mass.begin(), mass.end(), 0);
  for (int i = 0; i < n_queries;) {
    int n = 1;  // tokens of one block length
    while (i + n < n_queries &&
           kernels::block_length(first_pos + i + n) == kernels::block_length(first_pos + i)) {
      ++n;
    }
    for (int lane = 0; lane < n * heads.n; lane += kernels::prompt_tile_lanes()) {
      kernels::attend_prompt(rows,
                             {.q = q.data() + static_cast<size_t>(i) * token,
                              .out = nullptr,
                              .token_stride = token,
                              .gqa_group_size = heads.n,
                              .swa_window = 0,
                              .first_pos = first_pos + i,
                              .first_lane = lane,
                              .n_lanes = std::min(kernels::prompt_tile_lanes(), n * heads.n - lane),
                              .mass = mass.data(),
                              .mass_scale = kernels::kWindowMassScale},
                             layer.attention.scale, memory);
    }
    i += n;
  }
}

}  // namespace winnow::policy
