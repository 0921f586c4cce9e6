// Going back to an earlier length, where the rows that were held then are still there.

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "cache/cache.h"

namespace winnow::cache {

Cache::TrimBounds Cache::trim_bounds() const {
  TrimBounds all;
  for (const Head& state : heads_) {
    all.lose(state.trim.intact, state.trim.settled);
  }
  return all;
}

std::optional<Cache::MissingRow> Cache::missing_row(int n_positions) const {
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    const int swa_window = shape_.swa_window(layer);
    const int first_seen = swa_window > 0 ? n_positions - swa_window + 1 : 0;
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      const TrimBounds& trim = head(layer, kv_head).trim;
      if (trim.intact < n_positions && n_positions < trim.settled) {
        return MissingRow{layer, kv_head, std::max(trim.intact, first_seen)};
      }
    }
  }
  return std::nullopt;
}

void Cache::trim(int n_positions) {
  WINNOW_CHECK(!missing_row(n_positions));
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      const HeadRows held = rows(layer, kv_head);
      const int32_t* const end =
          std::lower_bound(held.positions, held.positions + held.n, n_positions);
      std::vector<int> slots(static_cast<size_t>(end - held.positions));
      std::iota(slots.begin(), slots.end(), 0);
      compact(layer, kv_head, slots);
      Head& state = head(layer, kv_head);
      if (n_positions <= state.trim.intact) {
        state.trim = {};
        if (float* const notes = rows(layer, kv_head).notes; notes != nullptr) {
          std::fill_n(notes, state.n_slots, kNotNoted);  // no cut has seen these rows
        }
      }
    }
  }
}

bool Cache::has_gaps() const {
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int kv_head = 0; shape_.swa_window(layer) == 0 && kv_head < shape_.n_kv_heads; ++kv_head) {
      if (head(layer, kv_head).trim.settled > 0) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace winnow::cache
