#include "kernels/key_turns.h"

#include <algorithm>

#include "base/error.h"

namespace winnow::kernels {
namespace {

// Appends the turns by n_first, n_first + step, … positions up to below `end`, each rounded once.
void add_turns(const Rotation& rotation, int n_first, int step, int end,
               std::vector<float>& turns) {
  std::vector<double> exact(rotation.n_rot());
  for (int n = n_first; n < end; n += step) {
    mean_turns(rotation, n, 1, exact);
    std::ranges::transform(exact, std::back_inserter(turns),
                           [](double turn) { return static_cast<float>(turn); });
  }
}

int n_turns(size_t n_floats, size_t n_rot) {
  return n_rot == 0 ? 0 : static_cast<int>(n_floats / n_rot);
}

}  // namespace

void TurnTable::reserve(int n) {
  const size_t n_rot = rotation_.n_rot();
  if (fine_.empty()) {
    add_turns(rotation_, 0, 1, kFine, fine_);
  }
  const int n_held = n_turns(coarse_.size(), n_rot) * kFine;
  if (n > n_held) {
    add_turns(rotation_, n_held, kFine, n, coarse_);
  }
}

size_t TurnTable::bytes(size_t n_rot, int n) {
  const auto n_coarse = static_cast<size_t>((n + kFine - 1) / kFine);
  return (static_cast<size_t>(kFine) + n_coarse) * n_rot * sizeof(float);
}

bool contiguous_lags(const cache::HeadRows& rows, int end, std::span<int32_t> lags) {
  WINNOW_CHECK(std::ssize(lags) == rows.n);
  if (rows.rotations == nullptr) {
    std::ranges::fill(lags, 0);
    return false;
  }
  int pos = end;
  int32_t any = 0;
  for (size_t slot = lags.size(); slot-- > 0;) {
    if (rows.hidden != nullptr && rows.hidden[slot] != cache::kVisible) {
      lags[slot] = 0;
      continue;
    }
    lags[slot] = rows.rotations[slot] - --pos;
    any |= lags[slot];
  }
  return any != 0;
}

int contiguous_end(const cache::HeadRows& rows) {
  int last = rows.n - 1;
  while (last >= 0 && rows.hidden != nullptr && rows.hidden[last] != cache::kVisible) {
    --last;
  }
  return last < 0 ? 0 : rows.rotations[last] + 1;
}

}  // namespace winnow::kernels
