// Decoding over heads of different lengths: one query of each head of a group against the rows of its KV head.
//
// The rules are those of kernels/attend.h, with an order of its own for sums. A score is one fixed tree over q and k. The rows that
// are seen are cut into parts of equal numbers (decode_part_length()); a part's rows are summed in chains that take turns, from the
// part's own maximum; chains are added in order, parts merge in ascending order. So what is evicted and what is hidden give the same
// bits, and no result depends on other heads or sequences.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device_rows.h"

namespace winnow::kernels::cuda {

// A KV head with one token's queries; all pointers are to device memory. Keys, values, queries and outputs are aligned to 16 bytes.
struct DecodeHead {
  const std::byte* keys;     // [n, head_dim]
  const std::byte* values;   // [n, head_dim]
  const int32_t* positions;  // [n], ascending, at most pos
  const uint8_t* hidden;     // [n] cache::Visibility, or null when all are visible
  int32_t* slots;            // [n] where some are hidden: for the plan to note those that are not
  const float* q;            // [gqa_group_size, head_dim]
  float* out;                // the same
  int n;
  int pos;         // of the token
  int swa_window;  // 0: all rows are seen; else those of the last so many positions
  bool has_nonfinite_values;
};

// What the weights of one query are relative to: its highest score, and the sum of exp(score - highest). -infinity and 0 where
// nothing is seen.
struct alignas(8) WeightSum {
  float highest;
  float sum;
};

// Work is handed out in parts: about this many of all heads of a token, so that every multiprocessor has two.
inline constexpr int kPartsOfToken = 256;
inline constexpr int kMinPartLength = 64;
inline constexpr int kMaxPartLength = 1024;  // whose weights fit shared memory

// Parts of one head of a model with so many KV heads, where they need not be longer than kMaxPartLength.
constexpr int wanted_decode_parts(int n_kv_heads) {
  constexpr int kLeastWanted = 16;
  constexpr int kMostWanted = 64;
  const int wanted = kPartsOfToken / n_kv_heads;
  return wanted < kLeastWanted ? kLeastWanted : wanted > kMostWanted ? kMostWanted : wanted;
}

// Rows in one part of n that are seen: a power of two.
constexpr int decode_part_length(int n, int n_kv_heads) {
  int length = kMinPartLength;
  while (length < kMaxPartLength && length * wanted_decode_parts(n_kv_heads) < n) {
    length *= 2;
  }
  return length;
}

// The most parts of any head of up to n rows.
constexpr int most_decode_parts(int n, int n_kv_heads) {
  const int of_shortest = (n + kMinPartLength - 1) / kMinPartLength;
  const int of_longest = (n + kMaxPartLength - 1) / kMaxPartLength;
  const int wanted = wanted_decode_parts(n_kv_heads);
  const int most = of_longest > wanted ? of_longest : of_shortest < wanted ? of_shortest : wanted;
  return most < 1 ? 1 : most;
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
  // Memory for up to most_heads heads of up to most_rows rows, most_attended of them in one attend(). Throws unsupported for
  // shapes that have no kernel.
  DecodePlan(const DecodeShape& shape, int most_heads, int most_attended, int most_rows);

  // heads [n_heads] in device memory; most_rows of any of them.
  void prepare(const DecodeHead* heads, int n_heads, int most_rows, const Stream& stream);
  // Attends for heads first … first + n - 1 of those prepared.
  void attend(int first, int n, const Stream& stream) const;
  // Where attend() leaves what weights sum up to [n_heads, gqa_group_size].
  const WeightSum* sums() const;

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
