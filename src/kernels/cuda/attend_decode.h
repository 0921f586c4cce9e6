// Decoding over heads of different lengths: one query of each head of a group against the rows of its KV head.
//
// The rules are those of kernels/attend.h, with an order of its own for sums. A score is one fixed tree over q and k. Positions are
// cut into parts (decode_part_length(), the blocks of kernels/blocks.h or pieces of them); a part's rows are summed in chains
// chosen by position, from the part's own maximum; chains are added in order, parts merge in ascending order. So what is evicted
// and what is hidden give the same bits, and no result depends on other heads or sequences.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/blocks.h"
#include "kernels/cuda/device_rows.h"

namespace winnow::kernels::cuda {

// A KV head with one token's queries; all pointers are to device memory. Keys, values, queries and outputs are aligned to 16 bytes.
struct DecodeHead {
  const std::byte* keys;     // [n, head_dim]
  const std::byte* values;   // [n, head_dim]
  const int32_t* positions;  // [n], ascending, at most pos
  const uint8_t* hidden;     // [n] cache::Visibility, or null when all are visible
  const float* q;            // [gqa_group_size, head_dim]
  float* out;                // the same
  int n;
  int pos;         // of the token
  int swa_window;  // 0: all rows are seen; else those of the last so many positions
  bool has_nonfinite_values;
};

// Work is handed out in parts: about this many of all heads of a token, so that every multiprocessor has two.
inline constexpr int kPartsOfToken = 256;
inline constexpr int kMinPartLength = 64;
inline constexpr int kMaxPartLength = 1024;  // whose weights fit shared memory

// Positions in one part, for a token at `pos` of a model with so many KV heads: a power of two, and never more than
// block_length(pos), since there are at least as many parts as blocks.
constexpr int decode_part_length(int pos, int n_kv_heads) {
  constexpr int kMostWanted = 64;
  int wanted = kPartsOfToken / n_kv_heads;
  wanted = wanted < kMaxBlocks ? kMaxBlocks : wanted > kMostWanted ? kMostWanted : wanted;
  int length = kMinPartLength;
  while (length < kMaxPartLength && length < pos / wanted + 1) {
    length *= 2;
  }
  return length;
}

constexpr int n_decode_parts(int pos, int n_kv_heads) {
  return pos / decode_part_length(pos, n_kv_heads) + 1;
}

// Throws unsupported for rows that attention has no kernel for.
void check_attended(const RowFormat& format);

struct DecodeShape {
  RowFormat format;  // f16 or bf16, the same for keys and values
  int gqa_group_size = 0;
  int n_kv_heads = 0;  // of the model's layer
  float scale = 0.0F;  // what q·k is multiplied with
};

// Where the rows of each part are: found once a token for the heads of all layers, which are numbered through.
class DecodePlan {
 public:
  // Memory for up to most_heads heads, most_attended of them in one attend(), and tokens at positions below n_positions.
  // Throws unsupported for shapes that have no kernel.
  DecodePlan(const DecodeShape& shape, int most_heads, int most_attended, int n_positions);

  // heads [n_heads] in device memory; `pos`: the highest position of any.
  void prepare(const DecodeHead* heads, int n_heads, int pos, const Stream& stream);
  // Attends for heads first … first + n - 1 of those prepared.
  void attend(int first, int n, const Stream& stream) const;

  size_t bytes() const { return buffer_.bytes(); }

  // What attend() launches kernels with: a recorded call is good for as long as this stays the same.
  struct Launch {
    const void* memory = nullptr;
    int n_heads = 0;
    int n_parts = 0;
    int part_length = 0;

    bool operator==(const Launch&) const = default;
  };
  Launch launch() const { return {buffer_.data(), n_heads_, n_parts_, part_length_}; }

 private:
  DecodeShape shape_;
  int most_heads_;
  int most_attended_;
  int most_parts_;
  int n_passes_;  // over a head's rows: one for up to 8 of its queries
  int n_heads_ = 0;
  int n_parts_ = 0;
  int part_length_ = 0;  // the longest
  Buffer buffer_;
};

}  // namespace winnow::kernels::cuda
