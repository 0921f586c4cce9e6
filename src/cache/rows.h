// What a cached row is, and views of the rows of one KV head.
//
// A row is one key and one value of one KV head, with the absolute position of its token. Rows are always in
// ascending position order. A slot is a row's index in its head; it says nothing about the position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace winnow::cache {

enum class RowType { kF32, kF16, kBf16 };

// "f32", "f16", "bf16"; throws invalid_argument with the list.
RowType parse_row_type(std::string_view name);
const char* row_type_name(RowType type);
size_t element_bytes(RowType type);

// What attention sees of a row. Evicted rows are gone, but for a while still take up their slots (Cache::keep).
enum Visibility : uint8_t { kVisible, kHidden, kEvicted };

inline constexpr float kUnknownNorm = -1;
inline constexpr float kNotNoted = -1;

// What the static score beside a row is.
enum class StaticScore : uint8_t {
  kSquaredNorm,  // of its key, written at append
  kProjection,   // of its key (kernels::ScoreDirections), likewise
  kNote,         // what the method has noted of the row when it last chose; kNotNoted before
  // What its neighbours paid to it (kernels/chunk_attention.h), written when its chunk is full; NaN before.
  kChunkAttention,
  kReplay,  // what a replay of its document attended to it (engine/replay.h), written then; +infinity before
};

// The slots of one KV head of one layer, those of evicted rows included. A view never owns.
struct HeadRows {
  const std::byte* keys;     // [n, head_dim] of key_type
  const std::byte* values;   // [n, head_dim] of value_type
  const int32_t* positions;  // [n], ascending
  const float* scores;       // [n] static scores, or null when the policy needs none
  const int64_t* mass;       // [n] column mass in units of 1 / kernels::kMassScale, or null
  const uint8_t* hidden;     // [n] Visibility, or null when all are visible
  int n;                     // slots
  int n_hidden;              // how many of them are not visible
  int head_dim;
  RowType key_type;
  RowType value_type;
  bool has_nonfinite_values;  // some value element is infinite or not a number
  // [n] what the values weigh in the layer's output, or null. Whoever needs a row's notes it here, so that it is computed
  // once: kUnknownNorm before. Heads are independent, as for appending.
  float* output_norms = nullptr;
  // [n] the position that each key is rotated to, or null: its own.
  const int32_t* rotations = nullptr;
  StaticScore score_kind = StaticScore::kSquaredNorm;  // what scores are
  // [n] the scores, for the method to write where they are its notes; else null. Heads are independent, likewise.
  float* notes = nullptr;

  int n_visible() const { return n - n_hidden; }
  bool is_evicted(int slot) const { return hidden != nullptr && hidden[slot] == kEvicted; }
};

// The slots that attention sees, ascending: the first n_visible of `slots`, which has room for n.
std::span<const int> visible_slots(const HeadRows& rows, std::span<int> slots);

}  // namespace winnow::cache
