#include "policy/window_attention.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "kernels/blocks.h"
#include "kernels/row_kernels.h"

namespace winnow::policy {
namespace {

// What LayerView::window says of query heads [first, first + n) to mass [rows.n].
void copy_window(const kernels::WindowMass& window, GroupHeads heads, std::span<int64_t> mass) {
  std::ranges::fill(mass, 0);
  for (int head = heads.first; head < heads.first + heads.n; ++head) {
    const int64_t* const of_head = window.mass + static_cast<size_t>(head) * window.stride;
    std::transform(mass.begin(), mass.end(), of_head, mass.begin(), std::plus<>());
  }
}

}  // namespace

int n_remembered(const LayerView& layer, int n_queries) {
  return std::min(n_queries,
                  layer.queries->end_pos(layer.layer) - layer.queries->begin_pos(layer.layer));
}

void add_attention_mass(const cache::HeadRows& rows, const Queries& queries, float scale,
                        double mass_scale, Scratch& scratch, std::span<int64_t> mass) {
  const Scratch::Frame frame(scratch);
  WINNOW_CHECK(std::ssize(mass) == rows.n);
  float* const memory = scratch
                            .take<float>(kernels::prompt_scratch_floats(
                                rows.head_dim, queries.first_pos + queries.n_tokens, rows.n))
                            .data();
  for (int i = 0; i < queries.n_tokens;) {
    int n = 1;  // tokens of one block length
    while (i + n < queries.n_tokens && kernels::block_length(queries.first_pos + i + n) ==
                                           kernels::block_length(queries.first_pos + i)) {
      ++n;
    }
    const int n_lanes = n * queries.n_heads;
    for (int lane = 0; lane < n_lanes; lane += kernels::prompt_tile_lanes()) {
      kernels::attend_prompt(rows,
                             {.q = queries.q + static_cast<size_t>(i) * queries.token_stride,
                              .out = nullptr,
                              .token_stride = queries.token_stride,
                              .gqa_group_size = queries.n_heads,
                              .swa_window = 0,
                              .first_pos = queries.first_pos + i,
                              .first_lane = lane,
                              .n_lanes = std::min(kernels::prompt_tile_lanes(), n_lanes - lane),
                              .mass = mass.data(),
                              .mass_scale = mass_scale},
                             scale, memory);
    }
    i += n;
  }
}

void turn_to_rows(const LayerView& layer, int kv_head, int pos, Scratch& scratch,
                  std::span<float> q) {
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  if (rows.rotations == nullptr) {
    return;
  }
  // The first visible row from there on, or behind the last one.
  int place = 0;
  for (int slot = rows.n - 1; slot >= 0; --slot) {
    const bool is_visible = rows.hidden == nullptr || rows.hidden[slot] == cache::kVisible;
    if (is_visible && rows.positions[slot] < pos) {
      place = std::max(place, rows.rotations[slot] + 1);
      break;
    }
    place = is_visible ? rows.rotations[slot] : place;
  }
  const int lag = layer.queries->rotation(layer.layer, pos) - place;
  const auto head_dim = static_cast<size_t>(rows.head_dim);
  for (size_t head = 0; lag != 0 && head < q.size(); head += head_dim) {
    kernels::turn_back_by(*layer.turns, lag, scratch, q.subspan(head, head_dim));
  }
}

void query_mass(const LayerView& layer, int kv_head, GroupHeads heads, int first_pos, int n_queries,
                Scratch& scratch, std::span<int64_t> mass) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  const auto token = static_cast<size_t>(heads.n) * static_cast<size_t>(rows.head_dim);
  const int first_head = kv_head * layer.attention.gqa_group_size() + heads.first;
  const std::span<float> q = scratch.take<float>(static_cast<size_t>(n_queries) * token);
  for (int i = 0; i < n_queries; ++i) {
    const std::span<float> to = q.subspan(static_cast<size_t>(i) * token, token);
    std::copy_n(layer.queries->query(layer.layer, first_head, first_pos + i), token, to.data());
    turn_to_rows(layer, kv_head, first_pos + i, scratch, to);
  }
  std::fill(mass.begin(), mass.end(), 0);
  add_attention_mass(rows,
                     {.q = q.data(),
                      .token_stride = token,
                      .n_heads = heads.n,
                      .n_tokens = n_queries,
                      .first_pos = first_pos},
                     layer.attention.scale, kernels::kWindowMassScale, scratch, mass);
}

void window_mass(const LayerView& layer, int kv_head, GroupHeads heads, int n_queries,
                 Scratch& scratch, std::span<int64_t> mass) {
  WINNOW_CHECK(n_queries <= n_remembered(layer, n_queries));
  if (layer.window != nullptr) {
    WINNOW_CHECK(n_queries == layer.window->n_queries);
    const int first_head = kv_head * layer.attention.gqa_group_size() + heads.first;
    copy_window(*layer.window, {.first = first_head, .n = heads.n}, mass);
    return;
  }
  query_mass(layer, kv_head, heads, layer.queries->end_pos(layer.layer) - n_queries, n_queries,
             scratch, mass);
}

void query_logits(const LayerView& layer, int kv_head, int head, int pos,
                  std::span<const int> slots, Scratch& scratch, std::span<float> logits) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  const std::span<float> q = scratch.take<float>(static_cast<size_t>(rows.head_dim));
  const float* const query = layer.queries->query(layer.layer, head, pos);
  std::transform(query, query + q.size(), q.begin(),
                 [&](float each) { return each * layer.attention.scale; });
  turn_to_rows(layer, kv_head, pos, scratch, q);
  kernels::row_dots(kernels::keys_of(rows), slots, q, logits, scratch);
}

std::span<const int> seen_slots(const cache::HeadRows& rows, std::span<const int> visible,
                                int pos) {
  const auto end =
      std::ranges::upper_bound(visible, pos, {}, [&](int slot) { return rows.positions[slot]; });
  return visible.first(static_cast<size_t>(end - visible.begin()));
}

void last_query_mass(const LayerView& layer, int kv_head, Scratch& scratch,
                     std::span<int64_t> mass) {
  const Scratch::Frame frame(scratch);
  const cache::HeadRows& rows = layer.heads[static_cast<size_t>(kv_head)];
  WINNOW_CHECK(n_remembered(layer, 1) == 1 && std::ssize(mass) == rows.n);
  if (layer.window != nullptr) {
    WINNOW_CHECK(layer.window->n_queries == 1);
    const int n_heads = layer.attention.gqa_group_size();
    copy_window(*layer.window, {.first = kv_head * n_heads, .n = n_heads}, mass);
    return;
  }
  const int pos = layer.queries->end_pos(layer.layer) - 1;
  const std::span<const int> visible =
      cache::visible_slots(rows, scratch.take<int>(static_cast<size_t>(rows.n)));
  const std::span<const int> slots = seen_slots(rows, visible, pos);
  const std::span<float> weights = scratch.take<float>(slots.size());
  const int group = layer.attention.gqa_group_size();
  std::ranges::fill(mass, 0);
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    query_logits(layer, kv_head, head, pos, slots, scratch, weights);
    kernels::softmax(weights);
    for (size_t i = 0; i < slots.size(); ++i) {
      const double weight = std::isnan(weights[i]) ? 0.0 : static_cast<double>(weights[i]);
      mass[static_cast<size_t>(slots[i])] +=
          static_cast<int64_t>(weight * kernels::kWindowMassScale);
    }
  }
}

}  // namespace winnow::policy
