// Small rows that anyone can make anew in any language, for which the scores of published implementations are known:
// two KV heads of 24 rows with 8 channels, and two query heads for each, from a linear congruential generator.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "policy/tiny_layer.h"
#include "policy/window_attention.h"

namespace winnow::policy::golden {

inline constexpr int kHeads = 4;
inline constexpr int kKvHeads = 2;
inline constexpr int kRows = 24;
inline constexpr int kHeadDim = 8;

// x <- 1664525 x + 1013904223 (mod 2^32), from the seed; each step gives x / 2^32 * 2 - 1, in double, as a float.
inline std::vector<float> fill(uint32_t seed, size_t n) {
  std::vector<float> numbers(n);
  uint32_t x = seed;
  for (float& number : numbers) {
    x = 1664525 * x + 1013904223;
    number = static_cast<float>(x / 4294967296.0 * 2 - 1);
  }
  return numbers;
}

// Both [n_kv_heads, n_rows, head_dim].
inline std::vector<float> keys() {
  return fill(1, size_t{kKvHeads} * kRows * kHeadDim);
}
inline std::vector<float> values() {
  return fill(2, size_t{kKvHeads} * kRows * kHeadDim);
}

inline std::vector<TinyHead> heads() {
  constexpr auto kElements = static_cast<std::ptrdiff_t>(kRows) * kHeadDim;
  const std::vector<float> all_keys = keys();
  const std::vector<float> all_values = values();
  std::vector<TinyHead> heads;
  for (std::ptrdiff_t first = 0; first < std::ssize(all_keys); first += kElements) {
    heads.push_back(TinyHead::with_rows(
        kHeadDim, {all_keys.begin() + first, all_keys.begin() + first + kElements},
        {all_values.begin() + first, all_values.begin() + first + kElements}));
  }
  return heads;
}

// Queries of all tokens before rotation [n_rows, n_heads, head_dim].
inline std::vector<float> plain_queries() {
  return fill(3, size_t{kRows} * kHeads * kHeadDim);
}

// And after it.
inline std::vector<float> queries() {
  return rotated_by_halves(plain_queries(), kHeads, kHeadDim);
}

// The output projection [n_embd, n_heads * head_dim].
inline std::vector<float> output_weights() {
  constexpr size_t kEmbd = size_t{kHeads} * kHeadDim;
  return fill(4, kEmbd * kEmbd);
}

inline float scale() {
  return 1.0F / std::sqrt(static_cast<float>(kHeadDim));
}

// The fixture's heads with the column mass of attention by all its queries.
inline std::vector<TinyHead> heads_with_mass() {
  std::vector<TinyHead> all = heads();
  const std::vector<float> q = queries();
  constexpr int kGroup = kHeads / kKvHeads;
  for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
    TinyHead& head = all[static_cast<size_t>(kv_head)];
    head.mass.assign(kRows, 0);
    Scratch scratch;
    add_attention_mass(head.rows({}),
                       {.q = q.data() + static_cast<size_t>(kv_head) * kGroup * kHeadDim,
                        .token_stride = size_t{kHeads} * kHeadDim,
                        .n_heads = kGroup,
                        .n_tokens = kRows,
                        .first_pos = 0},
                       scale(), kernels::kMassScale, scratch, head.mass);
  }
  return all;
}

// The fixture as one layer, with all that a method may ask for.
class Layer : public TinyLayer {
 public:
  Layer() : TinyLayer(heads_with_mass()) {
    set_queries(queries(), kHeads, kRows, scale());
    set_output_weights(output_weights());
  }
};

// The fixture's heads whose stored scores are what rows get in chunks of `length` tokens that all ask each other.
inline std::vector<TinyHead> heads_with_chunks(int length, bool is_scaled = false) {
  std::vector<TinyHead> all = heads();
  for (size_t kv_head = 0; kv_head < all.size(); ++kv_head) {
    fill_in_chunks(
        queries(),
        {.n_heads = kHeads, .n_kv_heads = kKvHeads, .head_dim = kHeadDim, .scale = scale()},
        static_cast<int>(kv_head), {.length = length, .is_scaled = is_scaled}, all[kv_head]);
  }
  return all;
}

// What a policy keeps of the fixture: slots, which are positions too.
inline KeptSlots kept_by(const std::string& spec) {
  return Layer().kept_by(Policy::parse(spec));
}

}  // namespace winnow::policy::golden
