// Moving kept rows together, in place and in order, by one thread block for each strip of their bytes.
//
// Kept row i comes from slots[i] >= i. So what a tile of rows is written over are rows of this tile and of tiles before it,
// never of one that is still to be read; and strips have no byte in common. A block that takes the tiles of its strip in
// order, reading a whole tile before it writes it, needs to know nothing of other blocks.
#pragma once

#include <cstddef>
#include <cstdint>

namespace winnow::kernels::cuda {

// One strip of rows of row_bytes: pieces first_piece … + n_pieces of each, of the size of a word.
struct Strip {
  std::byte* rows;
  size_t row_bytes;
  int first_piece;
  int n_pieces;  // 1 … threads of the block
};

// Called by all kThreads threads of a block. A thread has kUnroll pieces under way, and the slots of the next tile.
template <class Word, int kThreads, int kUnroll>
__device__ void move_strip(const Strip& strip, const int32_t* slots, int n_kept) {
  const int rows_per_step = kThreads / strip.n_pieces;
  const int row_of_step = static_cast<int>(threadIdx.x) / strip.n_pieces;
  const bool is_used = row_of_step < rows_per_step;
  std::byte* const pieces =
      strip.rows +
      static_cast<size_t>(strip.first_piece + static_cast<int>(threadIdx.x) % strip.n_pieces) *
          sizeof(Word);
  const auto at = [&](int row) {
    return reinterpret_cast<Word*>(pieces + static_cast<size_t>(row) * strip.row_bytes);
  };
  int next[kUnroll];
  const auto look_up = [&](int base) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int row = base + u * rows_per_step + row_of_step;
      next[u] = is_used && row < n_kept ? slots[row] : row;
    }
  };
  look_up(0);
  for (int base = 0; base < n_kept; base += rows_per_step * kUnroll) {
    Word words[kUnroll];
    unsigned moves = 0;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if (next[u] != base + u * rows_per_step + row_of_step) {
        moves |= 1U << u;
        words[u] = *at(next[u]);
      }
    }
    look_up(base + rows_per_step * kUnroll);
    __syncthreads();  // all of the tile is read
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      if ((moves >> u & 1) != 0) {
        *at(base + u * rows_per_step + row_of_step) = words[u];
      }
    }
  }
}

// The i-th of n_strips nearly equal strips of rows whose size is a multiple of 16 bytes.
__device__ __forceinline__ Strip cut_strip(std::byte* rows, size_t row_bytes, int n_strips, int i) {
  const int n = static_cast<int>(row_bytes / sizeof(uint4));
  const int first = n * i / n_strips;
  return {rows, row_bytes, first, n * (i + 1) / n_strips - first};
}

// The strip that numbers, one a row, are.
template <class T>
__device__ __forceinline__ Strip number_strip(T* numbers) {
  return {reinterpret_cast<std::byte*>(numbers), sizeof(T), 0, 1};
}

}  // namespace winnow::kernels::cuda
