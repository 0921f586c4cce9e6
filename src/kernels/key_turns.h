// Keys that attention sees at other positions than they were rotated to, for positions=contiguous: stored rows stay as they
// are, and keys are turned as they are read (docs/decisions/contiguous-positions.md).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/scratch.h"
#include "cache/rows.h"
#include "kernels/rotation.h"

namespace winnow::kernels {

// Turns by any number of positions, each of two that are kept: n = kFine · coarse + fine.
class TurnTable {
 public:
  static constexpr int kFine = 256;

  TurnTable() = default;
  explicit TurnTable(Rotation rotation) : rotation_(std::move(rotation)) {}

  // Room for turns by fewer than n positions. Not while others read.
  void reserve(int n);

  const Rotation& rotation() const { return rotation_; }
  // Cosines, then sines [n_rot], of fewer than kFine positions and of multiples of kFine.
  const float* fine(int n) const { return fine_.data() + offset(n); }
  const float* coarse(int n) const { return coarse_.data() + offset(n / kFine); }

  size_t bytes() const { return (fine_.size() + coarse_.size()) * sizeof(float); }
  // What that will be, of turns of n_rot numbers by fewer than n positions.
  static size_t bytes(size_t n_rot, int n);

 private:
  size_t offset(int n) const { return static_cast<size_t>(n) * rotation_.n_rot(); }

  Rotation rotation_;
  std::vector<float> fine_;    // [kFine, n_rot]
  std::vector<float> coarse_;  // [*, n_rot]
};

// What is done to the keys of one head as they are read.
struct KeyTurns {
  const TurnTable* table = nullptr;
  const int32_t* lags =
      nullptr;  // [n] slots: positions that the key is turned back by; negative: forwards
};

// lags [rows.n] of the visible rows where their positions are contiguous and the last is followed by `end`; of others 0.
// Returns whether any is not 0. Rows without rotations have no lags.
bool contiguous_lags(const cache::HeadRows& rows, int end, std::span<int32_t> lags);

// Behind what the last visible row is rotated to, so that its own lag is 0; 0 where there is none.
int contiguous_end(const cache::HeadRows& rows);

// keys [rows.n, head_dim], turned.
void turned_keys(const cache::HeadRows& rows, const KeyTurns& turns, Scratch& scratch,
                 std::span<float> keys);

// Turns x [n_rot …] back by `lag` positions, or forwards where it is negative.
void turn_back_by(const TurnTable& table, int lag, Scratch& scratch, std::span<float> x);

}  // namespace winnow::kernels
