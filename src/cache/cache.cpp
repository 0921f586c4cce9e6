#include "cache/cache.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"

namespace winnow::cache {
namespace {

size_t key_bytes(const CacheShape& shape) {
  return static_cast<size_t>(shape.head_dim) * element_bytes(shape.key_type);
}

size_t value_bytes(const CacheShape& shape) {
  return static_cast<size_t>(shape.head_dim) * element_bytes(shape.value_type);
}

size_t score_bytes(const CacheShape& shape) {
  return shape.stores_scores ? sizeof(float) : 0;
}

// Slots of a head's arrays.
size_t n_reserved(const CacheShape& shape) {
  return static_cast<size_t>(shape.max_rows) + Cache::kMaxEvictedSlots;
}

// The size of the four arrays of a head with so many slots, each starting on a page of its own so that it can be given
// back alone.
size_t paged_bytes(const CacheShape& shape, size_t n_slots) {
  return round_up_to_page(n_slots * key_bytes(shape)) +
         round_up_to_page(n_slots * value_bytes(shape)) +
         round_up_to_page(n_slots * sizeof(int32_t)) +
         round_up_to_page(n_slots * score_bytes(shape));
}

// Moves rows slots[0], slots[1], … of `row_bytes` each, in order. Safe in place, since slots ascend and so never lie
// before where they go; neighbouring rows move together.
void move_rows(const std::byte* rows, size_t row_bytes, std::span<const int> slots,
               std::byte* target) {
  size_t to = 0;
  while (to < slots.size()) {
    size_t run = 1;
    while (to + run < slots.size() && slots[to + run] == slots[to] + static_cast<int>(run)) {
      ++run;
    }
    const std::byte* const from = rows + static_cast<size_t>(slots[to]) * row_bytes;
    if (from != target + to * row_bytes) {
      std::memmove(target + to * row_bytes, from, run * row_bytes);
    }
    to += run;
  }
}

void check_slots(std::span<const int> slots, int n_cached) {
  int previous = -1;
  for (const int slot : slots) {
    WINNOW_CHECK(slot > previous && slot < n_cached);
    previous = slot;
  }
}

}  // namespace

int CacheShape::swa_window(int layer) const {
  return swa_windows.empty() ? 0 : swa_windows[static_cast<size_t>(layer)];
}

int CacheShape::n_windowed_layers() const {
  return static_cast<int>(std::count_if(swa_windows.begin(), swa_windows.end(),
                                        [](int swa_window) { return swa_window > 0; }));
}

int CacheShape::window_slack(int swa_window) {
  return std::clamp(swa_window / 4, 1, 64);
}

size_t CacheShape::full_bytes(int n_positions) const {
  size_t rows = 0;
  for (int layer = 0; layer < n_layers; ++layer) {
    const int seen = swa_window(layer) > 0 ? std::min(n_positions, swa_window(layer)) : n_positions;
    rows += static_cast<size_t>(seen);
  }
  return rows * static_cast<size_t>(n_kv_heads) * row_bytes();
}

size_t CacheShape::row_bytes() const {
  return key_bytes(*this) + value_bytes(*this) + sizeof(int32_t) + score_bytes(*this);
}

size_t CacheShape::reserved_bytes() const {
  return paged_bytes(*this, n_reserved(*this)) * static_cast<size_t>(n_layers) *
         static_cast<size_t>(n_kv_heads);
}

Cache::Cache(const CacheShape& shape)
    : shape_(shape),
      storage_(shape.reserved_bytes()),
      heads_(static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads)) {
  const size_t n_slots = n_reserved(shape);
  first_.values = round_up_to_page(n_slots * key_bytes(shape));
  first_.positions = first_.values + round_up_to_page(n_slots * value_bytes(shape));
  first_.scores = first_.positions + round_up_to_page(n_slots * sizeof(int32_t));
  first_.end = paged_bytes(shape, n_slots);
}

Cache::Head& Cache::head(int layer, int kv_head) {
  return heads_[static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
                static_cast<size_t>(kv_head)];
}

const Cache::Head& Cache::head(int layer, int kv_head) const {
  return heads_[static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
                static_cast<size_t>(kv_head)];
}

Cache::Ranges Cache::ranges(int layer, int kv_head) const {
  const size_t start =
      first_.end * (static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
                    static_cast<size_t>(kv_head));
  return {.keys = start + first_.keys,
          .values = start + first_.values,
          .positions = start + first_.positions,
          .scores = start + first_.scores,
          .end = start + first_.end};
}

HeadRows Cache::rows(int layer, int kv_head) const {
  const Ranges range = ranges(layer, kv_head);
  const Head& state = head(layer, kv_head);
  const std::byte* const data = storage_.data();
  return {.keys = data + range.keys,
          .values = data + range.values,
          .positions = reinterpret_cast<const int32_t*>(data + range.positions),
          .scores =
              shape_.stores_scores ? reinterpret_cast<const float*>(data + range.scores) : nullptr,
          .hidden = state.hidden.empty() ? nullptr : state.hidden.data(),
          .n = state.n_slots,
          .n_hidden = state.n_hidden,
          .head_dim = shape_.head_dim,
          .key_type = shape_.key_type,
          .value_type = shape_.value_type,
          .has_nonfinite_values = state.counts.nonfinite_values > 0};
}

std::vector<int32_t> Cache::positions(int layer, int kv_head) const {
  const HeadRows view = rows(layer, kv_head);
  std::vector<int32_t> held;
  held.reserve(static_cast<size_t>(n_cached(layer, kv_head)));
  for (int slot = 0; slot < view.n; ++slot) {
    if (view.hidden == nullptr || view.hidden[slot] != kEvicted) {
      held.push_back(view.positions[slot]);
    }
  }
  return held;
}

int Cache::longest() const {
  int n = 0;
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int kv_head = 0; shape_.swa_window(layer) == 0 && kv_head < shape_.n_kv_heads; ++kv_head) {
      n = std::max(n, n_cached(layer, kv_head));
    }
  }
  return n;
}

Cache::Target Cache::reserve(int layer, int kv_head, int n_rows) {
  const Ranges range = ranges(layer, kv_head);
  const Head& state = head(layer, kv_head);
  WINNOW_CHECK(n_rows >= 0 && state.n_cached() + n_rows <= shape_.max_rows);
  std::byte* const data = storage_.data();
  const auto next = static_cast<size_t>(state.n_slots);
  return {.keys = data + range.keys + next * key_bytes(shape_),
          .values = data + range.values + next * value_bytes(shape_),
          .positions = reinterpret_cast<int32_t*>(data + range.positions) + next,
          .scores = shape_.stores_scores ? reinterpret_cast<float*>(data + range.scores) + next
                                         : nullptr};
}

void Cache::commit(int layer, int kv_head, int n_rows, const AppendCounts& counts) {
  Head& state = head(layer, kv_head);
  state.n_slots += n_rows;
  state.n_touched = std::max(state.n_touched, state.n_slots);
  state.counts.saturated += counts.saturated;
  state.counts.nonfinite_keys += counts.nonfinite_keys;
  state.counts.nonfinite_values += counts.nonfinite_values;
  if (!state.hidden.empty()) {
    state.hidden.resize(static_cast<size_t>(state.n_slots), kVisible);
  }
}

void Cache::keep(int layer, int kv_head, std::span<const int> slots) {
  Head& state = head(layer, kv_head);
  const int n_kept = static_cast<int>(slots.size());
  record_evicted(state, state.n_cached(), rows(layer, kv_head), slots);
  if (state.n_slots - n_kept <= kMaxEvictedSlots) {
    mark_evicted(state, slots);
  } else {
    compact(layer, kv_head, slots);
  }
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
  state.n_evicted_slots = state.n_slots - static_cast<int>(slots.size());
  count_hidden(state);
}

void Cache::count_hidden(Head& state) {
  state.n_hidden = static_cast<int>(
      state.hidden.size() -
      static_cast<size_t>(std::count(state.hidden.begin(), state.hidden.end(), kVisible)));
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
  state.trim.intact = std::min(state.trim.intact, before.positions[first]);
  state.trim.settled = std::max(state.trim.settled, before.positions[before.n - 1] + 1);
}

void Cache::copy_kept(const Cache& source, int layer, int kv_head, std::span<const int> slots,
                      const float* scores) {
  Head& state = head(layer, kv_head);
  const Head& original = source.head(layer, kv_head);
  const HeadRows from = source.rows(layer, kv_head);
  WINNOW_CHECK(state.n_slots == 0 && from.head_dim == shape_.head_dim &&
               from.key_type == shape_.key_type && from.value_type == shape_.value_type);
  check_slots(slots, from.n);
  const auto n = static_cast<int>(slots.size());
  const Target to = reserve(layer, kv_head, n);
  move_rows(from.keys, key_bytes(shape_), slots, to.keys);
  move_rows(from.values, value_bytes(shape_), slots, to.values);
  const auto move = [&](const auto* whole, auto* kept) {
    move_rows(reinterpret_cast<const std::byte*>(whole), sizeof(*whole), slots,
              reinterpret_cast<std::byte*>(kept));
  };
  move(from.positions, to.positions);
  if (to.scores != nullptr) {
    move(scores, to.scores);
  }
  state.n_evicted = original.n_evicted;
  state.trim = original.trim;
  record_evicted(state, original.n_cached(), from, slots);
  commit(layer, kv_head, n, original.counts);
  if (from.hidden != nullptr) {
    state.hidden.resize(slots.size());
    move(from.hidden, state.hidden.data());
    WINNOW_CHECK(std::count(state.hidden.begin(), state.hidden.end(), kEvicted) == 0);
    count_hidden(state);
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
      TrimBounds& trim = head(layer, kv_head).trim;
      trim.intact = std::min(trim.intact, held.positions[0]);
      trim.settled =
          std::max(trim.settled, last_pos);  // the next query's window begins at the first row seen
      std::vector<int> slots(static_cast<size_t>(held.n - n_unseen));
      std::iota(slots.begin(), slots.end(), n_unseen);
      compact(layer, kv_head, slots);
    }
  }
}

void Cache::compact(int layer, int kv_head, std::span<const int> slots) {
  const Ranges range = ranges(layer, kv_head);
  Head& state = head(layer, kv_head);
  check_slots(slots, state.n_slots);
  // Decoding writes rows and evicts as many, over and over: pages that are needed again at once stay.
  constexpr int kSpareRows = 64;
  const bool gives_back = state.n_touched - static_cast<int>(slots.size()) > kSpareRows;
  std::byte* const data = storage_.data();
  struct Array {
    size_t begin, end, row_bytes;
  };
  const Array arrays[] = {{range.keys, range.values, key_bytes(shape_)},
                          {range.values, range.positions, value_bytes(shape_)},
                          {range.positions, range.scores, sizeof(int32_t)},
                          {range.scores, range.end, score_bytes(shape_)}};
  for (const Array& array : arrays) {
    if (array.row_bytes == 0) {
      continue;
    }
    move_rows(data + array.begin, array.row_bytes, slots, data + array.begin);
    const size_t used = array.begin + round_up_to_page(slots.size() * array.row_bytes);
    const size_t touched =
        array.begin + round_up_to_page(static_cast<size_t>(state.n_touched) * array.row_bytes);
    if (gives_back) {
      storage_.give_back(used, touched);
    }
  }
  if (!state.hidden.empty()) {
    auto* const hidden = reinterpret_cast<std::byte*>(state.hidden.data());
    move_rows(hidden, 1, slots, hidden);
    state.hidden.resize(slots.size());
    count_hidden(state);
  }
  state.n_slots = static_cast<int>(slots.size());
  state.n_evicted_slots =
      static_cast<int>(std::count(state.hidden.begin(), state.hidden.end(), kEvicted));
  if (gives_back) {
    state.n_touched = state.n_slots;
  }
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

size_t Cache::now_bytes() const {
  size_t rows = 0;
  for (const Head& state : heads_) {
    rows += static_cast<size_t>(state.n_cached());
  }
  return rows * shape_.row_bytes();
}

size_t Cache::committed_bytes() const {
  size_t bytes = 0;
  for (const Head& state : heads_) {
    bytes += paged_bytes(shape_, static_cast<size_t>(state.n_touched));
  }
  return bytes;
}

void Cache::record_peak() {
  peak_bytes_ = std::max(peak_bytes_, now_bytes());
}

int64_t Cache::rows_evicted() const {
  int64_t rows = 0;
  for (const Head& state : heads_) {
    rows += state.n_evicted;
  }
  return rows;
}

Cache::AppendCounts Cache::append_counts() const {
  AppendCounts total;
  for (const Head& state : heads_) {
    total.saturated += state.counts.saturated;
    total.nonfinite_keys += state.counts.nonfinite_keys;
    total.nonfinite_values += state.counts.nonfinite_values;
  }
  return total;
}

}  // namespace winnow::cache
