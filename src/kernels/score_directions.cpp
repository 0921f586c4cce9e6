#include "kernels/score_directions.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/append.h"

namespace winnow::kernels {
namespace {

cache::HeadRows row_at(const cache::HeadRows& rows, int slot) {
  cache::HeadRows row = rows;
  row.keys += static_cast<size_t>(slot) * static_cast<size_t>(rows.head_dim) *
              cache::element_bytes(rows.key_type);
  row.n = 1;
  return row;
}

}  // namespace

void turned_scores(const cache::HeadRows& rows, std::span<const float> direction,
                   const Rotation& rotation, std::span<const float> turns, std::span<float> scratch,
                   std::span<float> scores) {
  const size_t n_rot = rotation.n_rot();
  const std::span<float> turned = scratch.first(direction.size());
  for (int slot = 0; slot < rows.n; ++slot) {
    const auto i = static_cast<size_t>(slot);
    std::ranges::copy(direction, turned.begin());
    turn(rotation, turns.subspan(i * n_rot, n_rot), turned);
    static_scores(row_at(rows, slot), turned, scores.subspan(i, 1));
  }
}

void project_keys(const cache::HeadRows& rows, const ScoreDirections& directions, int layer,
                  int kv_head, const Rotation* rotation, Scratch& scratch,
                  std::span<float> scores) {
  const std::span<const float> direction = directions.of(layer, kv_head);
  if (!directions.is_before_rotation || direction.empty()) {
    static_scores(rows, direction, scores);
    return;
  }
  WINNOW_CHECK(rotation != nullptr && std::ssize(scores) == rows.n);
  const Scratch::Frame frame(scratch);
  const std::span<float> turns = scratch.take<float>(rotation->n_rot());
  const std::span<float> turned = scratch.take<float>(direction.size());
  for (int slot = 0; slot < rows.n; ++slot) {
    turns_at(*rotation, rows.rotations != nullptr ? rows.rotations[slot] : rows.positions[slot],
             turns);
    turned_scores(row_at(rows, slot), direction, *rotation, turns, turned,
                  scores.subspan(static_cast<size_t>(slot), 1));
  }
}

}  // namespace winnow::kernels
