#include "kernels/chunk_attention.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/scratch.h"
#include "kernels/attend.h"
#include "kernels/blocks.h"

namespace winnow::kernels {
namespace {

// Rows stand at places 0 … n-1, and the tokens of a tile from place n-1 on, so that all see all of them, in blocks of one length.
constexpr int kMostPlaces = 2 * kMaxChunkLength;
static_assert((kMostPlaces + kMaxBlocks) / kMaxBlocks <= kMinBlockLength);

constexpr size_t place_floats() {
  static_assert(sizeof(int32_t) == sizeof(float));
  return size_t{kMaxChunkLength};
}

}  // namespace

ChunkSlots chunk_slots(const cache::HeadRows& rows, int begin, int length) {
  const int32_t* const end = rows.positions + rows.n;
  const int32_t* const first = std::lower_bound(rows.positions, end, begin);
  const int32_t* const last = std::lower_bound(first, end, begin + length);
  return {.first = static_cast<int>(first - rows.positions),
          .last = static_cast<int>(last - rows.positions)};
}

void add_chunk_attention(const cache::HeadRows& rows, const ChunkSlots& slots,
                         const ChunkQueries& queries, float scale, float* scratch,
                         std::span<int64_t> mass) noexcept {
  const int n = slots.last - slots.first;
  if (n == 0) {
    return;
  }
  const auto first = static_cast<size_t>(slots.first);
  const auto dim = static_cast<size_t>(rows.head_dim);
  auto* const places = reinterpret_cast<int32_t*>(scratch);
  std::iota(places, places + n, 0);
  cache::HeadRows chunk = rows;
  chunk.keys += first * dim * cache::element_bytes(rows.key_type);
  chunk.values += first * dim * cache::element_bytes(rows.value_type);
  chunk.positions = places;
  chunk.hidden = rows.hidden == nullptr ? nullptr : rows.hidden + first;
  chunk.n = n;
  chunk.rotations = nullptr;
  const int n_lanes = queries.n_tokens * queries.n_heads;
  const int tile = prompt_tile_lanes();
  for (int lane = 0; lane < n_lanes; lane += tile) {
    attend_prompt(chunk,
                  {.q = queries.q,
                   .out = nullptr,
                   .token_stride = queries.token_stride,
                   .gqa_group_size = queries.n_heads,
                   .swa_window = 0,
                   .first_pos = n - 1,
                   .first_lane = lane,
                   .n_lanes = std::min(tile, n_lanes - lane),
                   .mass = mass.data()},
                  scale, scratch + place_floats());
  }
}

size_t chunk_scratch_floats(int head_dim) {
  return place_floats() +
         prompt_scratch_floats(head_dim, kMostPlaces, kMaxChunkLength, kMaxChunkLength);
}

}  // namespace winnow::kernels
