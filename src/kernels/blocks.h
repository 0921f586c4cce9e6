// Attention cuts a sequence into blocks at absolute positions, never at row numbers, so that what is kept and what is
// merely masked give the same bits (docs/decisions/position-blocks.md).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace winnow::kernels {

inline constexpr int kMinBlockLength = 256;
inline constexpr int kMaxBlocks = 16;

// Positions in one block for a query at `pos`: the smallest power of two >= max(256, (pos + 1) / 16). It depends on the
// query's position alone, and gives at most 16 blocks.
inline int block_length(int pos) {
  const int sixteenth = (pos + kMaxBlocks) / kMaxBlocks;  // ceil((pos + 1) / 16)
  return static_cast<int>(
      std::bit_ceil(static_cast<uint32_t>(std::max(kMinBlockLength, sixteenth))));
}

// The first position that a query at `pos` sees; a window of 0 hides nothing.
constexpr int first_visible(int pos, int swa_window) {
  return swa_window > 0 ? std::max(pos - swa_window + 1, 0) : 0;
}

inline constexpr int kTileRows = 64;  // rows a kernel brings to floats at a time

// The most rows a block of a head of n_rows may hold for queries at positions below `n_positions`, rounded up to whole
// tiles.
inline size_t block_capacity(int n_positions, int n_rows) {
  const int length = std::min(block_length(std::max(n_positions - 1, 0)), n_rows);
  return (static_cast<size_t>(length) + kTileRows - 1) / kTileRows * kTileRows;
}

inline int n_blocks(int pos) {
  return pos / block_length(pos) + 1;
}

}  // namespace winnow::kernels
