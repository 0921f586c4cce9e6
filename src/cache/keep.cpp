// Which rows a head keeps: evicting the others, moving those that stay together, and giving memory back.

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "cache/remote_rows.h"

namespace winnow::cache {
namespace {

// Elements slots[0], slots[1], … to target, in order. Safe in place, as all moves here: slots ascend, so nothing lies before
// where it goes.
template <class T>
void move_elements(const T* elements, std::span<const int> slots, T* target) {
  for (size_t i = 0; i < slots.size(); ++i) {
    target[i] = elements[slots[i]];
  }
}

// The same for rows of `row_bytes` each. They are fetched ahead: no processor guesses where the next one is.
void move_rows(const std::byte* rows, size_t row_bytes, std::span<const int> slots,
               std::byte* target) {
  constexpr size_t kLineBytes = 64;
  constexpr size_t kAhead = 16;
  const auto row = [&](size_t i) { return rows + static_cast<size_t>(slots[i]) * row_bytes; };
  for (size_t i = 0; i < slots.size(); ++i) {
    if (i + kAhead < slots.size()) {
      for (size_t at = 0; at < row_bytes; at += kLineBytes) {
        __builtin_prefetch(row(i + kAhead) + at);
      }
    }
    if (row(i) != target + i * row_bytes) {
      std::memmove(target + i * row_bytes, row(i), row_bytes);
    }
  }
}

void check_slots(std::span<const int> slots, int n_slots) {
  int previous = -1;
  for (const int slot : slots) {
    WINNOW_CHECK(slot > previous && slot < n_slots);
    previous = slot;
  }
}

}  // namespace

void Cache::keep(int layer, int kv_head, std::span<const int> slots) {
  Head& state = head(layer, kv_head);
  const int n_kept = static_cast<int>(slots.size());
  record_evicted(state, state.n_cached(), rows(layer, kv_head), slots);
  if (!remote_ && state.n_slots - n_kept <= kMaxEvictedSlots) {
    mark_evicted(state, slots);
  } else {
    compact(layer, kv_head, slots);
  }
}

void Cache::follow(int layer, int kv_head, std::span<const int32_t> slots, bool are_lost) {
  Head& state = head(layer, kv_head);
  WINNOW_CHECK(remote_ && state.hidden.empty() && std::is_sorted(slots.begin(), slots.end()));
  const HeadRows before = rows(layer, kv_head);
  if (!are_lost) {
    record_evicted(state, state.n_cached(), before, slots);
    compact(layer, kv_head, slots, /*moves_rows=*/false);
    return;
  }
  if (slots.empty()) {
    return;
  }
  state.n_evicted += std::ssize(slots);
  state.trim.lose(before.positions[slots[0]], before.positions[before.n - 1] + 1);
  const Ranges range = ranges(layer, kv_head);
  const auto close_gaps = [&](auto* elements) {
    // What lies between two gaps moves by as many as were before.
    for (size_t i = 0; i < slots.size(); ++i) {
      const int first = slots[i] + 1;
      const int end = i + 1 < slots.size() ? slots[i + 1] : before.n;
      std::copy(elements + first, elements + end, elements + slots[i] - static_cast<int>(i));
    }
  };
  close_gaps(reinterpret_cast<int32_t*>(storage_.data() + range.positions));
  if (float* const norms = output_norms(layer, kv_head); norms != nullptr) {
    close_gaps(norms);
  }
  if (shape_.stores_rotations) {
    close_gaps(reinterpret_cast<int32_t*>(storage_.data() + range.rotations));
  }
  state.n_slots -= static_cast<int>(slots.size());
  give_back_behind(layer, kv_head);
}

// All slots beside `slots`.
void Cache::mark_evicted(Head& state, std::span<const int> slots) {
  state.hidden.resize(static_cast<size_t>(state.n_slots), kVisible);
  const auto evict = [&](int first, int last) {
    std::fill(state.hidden.begin() + first, state.hidden.begin() + last, kEvicted);
  };
  int next = 0;
  for (const int slot : slots) {
    WINNOW_CHECK(slot >= next && slot < state.n_slots);
    WINNOW_CHECK(state.hidden[static_cast<size_t>(slot)] != kEvicted);
    if (slot > next) {
      evict(next, slot);
    }
    next = slot + 1;
  }
  evict(next, state.n_slots);
  count_hidden(state);
}

void Cache::count_hidden(Head& state) {
  state.n_hidden = 0;
  state.n_evicted_slots = 0;
  for (const uint8_t mark : state.hidden) {
    state.n_hidden += mark != kVisible ? 1 : 0;
    state.n_evicted_slots += mark == kEvicted ? 1 : 0;
  }
  if (state.n_hidden == 0) {
    state.hidden.clear();
  }
}

// Keeping `slots` of the n_cached rows `before`: one more loss that the head cannot be trimmed across.
void Cache::record_evicted(Head& state, int n_cached, const HeadRows& before,
                           std::span<const int> slots) {
  const auto n_kept = static_cast<int>(slots.size());
  if (n_kept == n_cached) {
    return;
  }
  int first = 0;  // slot that goes
  while (first < n_kept && slots[static_cast<size_t>(first)] == first) {
    ++first;
  }
  state.n_evicted += n_cached - n_kept;
  state.trim.lose(before.positions[first], before.positions[before.n - 1] + 1);
}

std::byte* Cache::keys(int layer, int kv_head) {
  return storage_.data() + ranges(layer, kv_head).keys;
}

std::byte* Cache::values(int layer, int kv_head) {
  return storage_.data() + ranges(layer, kv_head).values;
}

void Cache::commit_keys(int layer, int kv_head, std::span<const int> slots) {
  if (slots.empty()) {
    return;
  }
  Head& state = head(layer, kv_head);
  check_slots(slots, state.n_slots);
  const HeadRows held = rows(layer, kv_head);
  state.trim.lose(held.positions[slots[0]], held.positions[held.n - 1] + 1);
}

void Cache::commit_values(int layer, int kv_head, std::span<const int> slots,
                          const AppendCounts& counts) {
  commit_keys(layer, kv_head, slots);
  AppendCounts& all = head(layer, kv_head).counts;
  all.saturated += counts.saturated;
  all.nonfinite_values += counts.nonfinite_values;
  float* const output_norms = rows(layer, kv_head).output_norms;
  for (const int slot : slots) {
    if (output_norms != nullptr) {
      output_norms[slot] = kUnknownNorm;
    }
  }
}

void Cache::copy_kept(const Cache& source, int layer, int kv_head, std::span<const int> slots,
                      const float* scores) {
  Head& state = head(layer, kv_head);
  const Head& original = source.head(layer, kv_head);
  const HeadRows from = source.rows(layer, kv_head);
  WINNOW_CHECK((remote_ == nullptr) == (source.remote_ == nullptr));
  WINNOW_CHECK(state.n_slots == 0 && from.head_dim == shape_.head_dim &&
               from.key_type == shape_.key_type && from.value_type == shape_.value_type);
  check_slots(slots, from.n);
  const auto n = static_cast<int>(slots.size());
  const Target to = reserve(layer, kv_head, n);
  if (remote_) {
    remote_->copy_kept(*source.remote_, layer, kv_head, slots);
  } else {
    move_rows(from.keys, shape_.key_bytes(), slots, to.keys);
    move_rows(from.values, shape_.value_bytes(), slots, to.values);
  }
  move_elements(from.positions, slots, to.positions);
  if (to.scores != nullptr) {
    move_elements(scores, slots, to.scores);
  }
  if (to.mass != nullptr) {
    WINNOW_CHECK(from.mass != nullptr);
    move_elements(from.mass, slots, to.mass);
  }
  if (float* const norms = output_norms(layer, kv_head);
      norms != nullptr && from.output_norms != nullptr) {
    move_elements(from.output_norms, slots, norms);
  }
  if (to.rotations != nullptr) {
    move_elements(from.rotations != nullptr ? from.rotations : from.positions, slots, to.rotations);
  } else {
    WINNOW_CHECK(from.rotations == nullptr || std::ranges::all_of(slots, [&](int slot) {
                   return from.rotations[slot] == from.positions[slot];
                 }));
  }
  state.n_evicted = original.n_evicted;
  state.trim = original.trim;
  record_evicted(state, original.n_cached(), from, slots);
  commit(layer, kv_head, n, original.counts);
  if (from.hidden != nullptr) {
    state.hidden.resize(slots.size());
    move_elements(from.hidden, slots, state.hidden.data());
    count_hidden(state);
    WINNOW_CHECK(state.n_evicted_slots == 0);
  }
}

void Cache::drop_unseen(int layer, int last_pos) {
  const int swa_window = shape_.swa_window(layer);
  if (swa_window == 0) {
    return;
  }
  for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
    const HeadRows held = rows(layer, kv_head);
    const int32_t* const seen =
        std::upper_bound(held.positions, held.positions + held.n, last_pos - swa_window);
    const int n_unseen = static_cast<int>(seen - held.positions);
    if (n_unseen >= CacheShape::window_slack(swa_window)) {
      // The next query's window begins at the first row seen.
      head(layer, kv_head).trim.lose(held.positions[0], last_pos);
      std::vector<int> slots(static_cast<size_t>(held.n - n_unseen));
      std::iota(slots.begin(), slots.end(), n_unseen);
      compact(layer, kv_head, slots);
    }
  }
}

void Cache::compact(int layer, int kv_head, std::span<const int> slots, bool moves_rows) {
  const Ranges range = ranges(layer, kv_head);
  Head& state = head(layer, kv_head);
  check_slots(slots, state.n_slots);
  std::byte* const data = storage_.data();
  if (!moves_rows) {
    WINNOW_CHECK(remote_);
  } else if (remote_) {
    remote_->keep(layer, kv_head, slots, state.n_slots);
  } else {
    move_rows(data + range.keys, shape_.key_bytes(), slots, data + range.keys);
    move_rows(data + range.values, shape_.value_bytes(), slots, data + range.values);
    if (shape_.stores_scores) {
      auto* const scores = reinterpret_cast<float*>(data + range.scores);
      move_elements(scores, slots, scores);
    }
  }
  auto* const positions = reinterpret_cast<int32_t*>(data + range.positions);
  move_elements(positions, slots, positions);
  if (int64_t* const received = mass(layer, kv_head); received != nullptr) {
    move_elements(received, slots, received);
  }
  if (float* const norms = output_norms(layer, kv_head); norms != nullptr) {
    move_elements(norms, slots, norms);
  }
  if (shape_.stores_rotations) {
    auto* const rotations = reinterpret_cast<int32_t*>(data + range.rotations);
    move_elements(rotations, slots, rotations);
  }
  if (!state.hidden.empty()) {
    move_elements(state.hidden.data(), slots, state.hidden.data());
    state.hidden.resize(slots.size());
    count_hidden(state);
  }
  state.n_slots = static_cast<int>(slots.size());
  give_back_behind(layer, kv_head);
}

void Cache::give_back_behind(int layer, int kv_head) {
  // Decoding writes rows and evicts as many, over and over: pages that are needed again at once stay.
  constexpr int kSpareRows = 64;
  const Ranges range = ranges(layer, kv_head);
  Head& state = head(layer, kv_head);
  if (state.n_touched - state.n_slots <= kSpareRows) {
    return;
  }
  const auto give_back = [&](size_t begin, size_t row_bytes) {
    storage_.give_back(begin + round_up_to_page(static_cast<size_t>(state.n_slots) * row_bytes),
                       begin + round_up_to_page(static_cast<size_t>(state.n_touched) * row_bytes));
  };
  if (!remote_) {
    give_back(range.keys, shape_.key_bytes());
    give_back(range.values, shape_.value_bytes());
    give_back(range.scores, shape_.score_bytes());
    give_back(range.mass, shape_.mass_bytes());
  }
  give_back(range.positions, sizeof(int32_t));
  give_back(range.output_norms, shape_.output_norm_bytes());
  give_back(range.rotations, shape_.rotation_bytes());
  state.n_touched = state.n_slots;
}

void Cache::hide_others(int layer, int kv_head, std::span<const int> slots) {
  Head& state = head(layer, kv_head);
  check_slots(slots, state.n_slots);
  state.hidden.resize(static_cast<size_t>(state.n_slots), kVisible);
  for (uint8_t& mark : state.hidden) {
    mark = std::max<uint8_t>(mark, kHidden);
  }
  for (const int slot : slots) {
    WINNOW_CHECK(state.hidden[static_cast<size_t>(slot)] != kEvicted);
    state.hidden[static_cast<size_t>(slot)] = kVisible;
  }
  count_hidden(state);
}

}  // namespace winnow::cache
