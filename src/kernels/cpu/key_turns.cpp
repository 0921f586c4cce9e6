// Turned copies of keys and queries, for what reads them beside attention.

#include "kernels/key_turns.h"

#include "base/error.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/key_turns.cpp"  // NOLINT
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/rows-inl.h"
#include "kernels/cpu/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels {
namespace HWY_NAMESPACE {

// One row at a time: rows of floats here have no padding.
void turned_keys_impl(const cache::HeadRows& rows, const KeyTurns& key_turns, float* turns,
                      float* padded, float* keys) {
  const size_t dim = static_cast<size_t>(rows.head_dim);
  const size_t key_bytes = dim * cache::element_bytes(rows.key_type);
  for (int slot = 0; slot < rows.n; ++slot) {
    const size_t at = static_cast<size_t>(slot);
    load_rows(rows.key_type, rows.keys + at * key_bytes, 1, rows.head_dim, padded);
    turn_keys(key_turns, slot, 1, dim, padded, turns);
    std::memcpy(keys + at * dim, padded, dim * sizeof(float));
  }
}

void turn_back_by_impl(const TurnTable& table, int lag, float* turns, float* x) {
  const KeyTurns key_turns{.table = &table, .lags = &lag};
  turn_keys(key_turns, 0, 1, 0, x, turns);
}

size_t padded_dim_impl(int head_dim) {
  return padded_dim(head_dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace winnow::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels {

HWY_EXPORT(turned_keys_impl);
HWY_EXPORT(turn_back_by_impl);
HWY_EXPORT(padded_dim_impl);

void turned_keys(const cache::HeadRows& rows, const KeyTurns& turns, Scratch& scratch,
                 std::span<float> keys) {
  const Scratch::Frame frame(scratch);
  WINNOW_CHECK(keys.size() == static_cast<size_t>(rows.n) * static_cast<size_t>(rows.head_dim));
  const std::span<float> of_lag = scratch.take<float>(turns.table->rotation().n_rot());
  const std::span<float> padded =
      scratch.take<float>(HWY_DYNAMIC_DISPATCH(padded_dim_impl)(rows.head_dim));
  HWY_DYNAMIC_DISPATCH(turned_keys_impl)(rows, turns, of_lag.data(), padded.data(), keys.data());
}

void turn_back_by(const TurnTable& table, int lag, Scratch& scratch, std::span<float> x) {
  const Scratch::Frame frame(scratch);
  WINNOW_CHECK(x.size() >= table.rotation().n_rot());
  const std::span<float> turns = scratch.take<float>(table.rotation().n_rot());
  HWY_DYNAMIC_DISPATCH(turn_back_by_impl)(table, lag, turns.data(), x.data());
}

}  // namespace winnow::kernels
#endif
