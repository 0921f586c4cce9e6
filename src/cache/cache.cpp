#include "cache/cache.h"

#include <algorithm>

#include "base/error.h"
#include "cache/remote_rows.h"

namespace winnow::cache {
namespace {

// Slots of a head's arrays.
size_t n_reserved(const CacheShape& shape) {
  return static_cast<size_t>(shape.max_rows) + Cache::kMaxEvictedSlots;
}

// The size of the arrays of a head with so many slots, each starting on a page of its own so that it can be given
// back alone.
size_t paged_bytes(const CacheShape& shape, size_t n_slots) {
  const size_t of_rows = shape.is_remote ? 0
                                         : round_up_to_page(n_slots * shape.key_bytes()) +
                                               round_up_to_page(n_slots * shape.value_bytes()) +
                                               round_up_to_page(n_slots * shape.score_bytes()) +
                                               round_up_to_page(n_slots * shape.mass_bytes());
  return of_rows + round_up_to_page(n_slots * sizeof(int32_t)) +
         round_up_to_page(n_slots * shape.output_norm_bytes()) +
         round_up_to_page(n_slots * shape.rotation_bytes());
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

size_t CacheShape::key_bytes() const {
  return static_cast<size_t>(head_dim) * element_bytes(key_type);
}

size_t CacheShape::value_bytes() const {
  return static_cast<size_t>(head_dim) * element_bytes(value_type);
}

size_t CacheShape::score_bytes() const {
  return stores_scores ? sizeof(float) : 0;
}

size_t CacheShape::mass_bytes() const {
  return stores_mass ? sizeof(int64_t) : 0;
}

size_t CacheShape::output_norm_bytes() const {
  return stores_output_norms ? sizeof(float) : 0;
}

size_t CacheShape::rotation_bytes() const {
  return stores_rotations ? sizeof(int32_t) : 0;
}

size_t CacheShape::row_bytes() const {
  return key_bytes() + value_bytes() + sizeof(int32_t) + score_bytes() + mass_bytes() +
         output_norm_bytes() + rotation_bytes();
}

size_t CacheShape::reserved_bytes() const {
  return paged_bytes(*this, n_reserved(*this)) * static_cast<size_t>(n_layers) *
         static_cast<size_t>(n_kv_heads);
}

Cache::Cache(const CacheShape& shape, std::shared_ptr<RemoteRows> remote)
    : shape_(shape),
      remote_(std::move(remote)),
      storage_(shape.reserved_bytes()),
      heads_(static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads)) {
  WINNOW_CHECK(shape.is_remote == (remote_ != nullptr));
  const size_t n_slots = n_reserved(shape);
  const size_t n_host_slots = shape.is_remote ? 0 : n_slots;  // of keys, values, scores and mass
  first_.values = round_up_to_page(n_host_slots * shape.key_bytes());
  first_.positions = first_.values + round_up_to_page(n_host_slots * shape.value_bytes());
  first_.scores = first_.positions + round_up_to_page(n_slots * sizeof(int32_t));
  first_.mass = first_.scores + round_up_to_page(n_host_slots * shape.score_bytes());
  first_.output_norms = first_.mass + round_up_to_page(n_host_slots * shape.mass_bytes());
  first_.rotations = first_.output_norms + round_up_to_page(n_slots * shape.output_norm_bytes());
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
          .mass = start + first_.mass,
          .output_norms = start + first_.output_norms,
          .rotations = start + first_.rotations,
          .end = start + first_.end};
}

HeadRows Cache::rows(int layer, int kv_head) const {
  const Ranges range = ranges(layer, kv_head);
  const Head& state = head(layer, kv_head);
  const std::byte* const data = storage_.data();
  return {.keys = remote_ ? nullptr : data + range.keys,
          .values = remote_ ? nullptr : data + range.values,
          .positions = reinterpret_cast<const int32_t*>(data + range.positions),
          .scores = shape_.stores_scores && !remote_
                        ? reinterpret_cast<const float*>(data + range.scores)
                        : nullptr,
          .mass = shape_.stores_mass && !remote_
                      ? reinterpret_cast<const int64_t*>(data + range.mass)
                      : nullptr,
          .hidden = state.hidden.empty() ? nullptr : state.hidden.data(),
          .n = state.n_slots,
          .n_hidden = state.n_hidden,
          .head_dim = shape_.head_dim,
          .key_type = shape_.key_type,
          .value_type = shape_.value_type,
          .has_nonfinite_values = state.counts.nonfinite_values > 0,
          .output_norms = output_norms(layer, kv_head),
          .rotations = shape_.stores_rotations
                           ? reinterpret_cast<const int32_t*>(data + range.rotations)
                           : nullptr,
          .score_kind = remote_ ? StaticScore::kSquaredNorm : shape_.score_kind,
          .notes = shape_.stores_scores && shape_.score_kind == StaticScore::kNote && !remote_
                       ? reinterpret_cast<float*>(storage_.data() + range.scores)
                       : nullptr};
}

std::vector<int32_t> Cache::positions(int layer, int kv_head) const {
  const HeadRows view = rows(layer, kv_head);
  std::vector<int32_t> held;
  held.reserve(static_cast<size_t>(n_cached(layer, kv_head)));
  for (int slot = 0; slot < view.n; ++slot) {
    if (!view.is_evicted(slot)) {
      held.push_back(view.positions[slot]);
    }
  }
  return held;
}

template <class Count>
int Cache::most(const Count& count) const {
  int n = 0;
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int kv_head = 0; shape_.swa_window(layer) == 0 && kv_head < shape_.n_kv_heads; ++kv_head) {
      n = std::max(n, count(head(layer, kv_head)));
    }
  }
  return n;
}

int Cache::longest() const {
  return most([](const Head& state) { return state.n_cached(); });
}

int Cache::longest_slots() const {
  return most([](const Head& state) { return state.n_slots; });
}

int Cache::next_contiguous() const {
  return most([](const Head& state) { return state.n_slots - state.n_hidden; });
}

int Cache::rotation_end() const {
  int end = 0;
  for (const Head& state : heads_) {
    end = std::max(end, state.rotation_end);
  }
  return end;
}

Cache::Target Cache::reserve(int layer, int kv_head, int n_rows) {
  const Ranges range = ranges(layer, kv_head);
  const Head& state = head(layer, kv_head);
  WINNOW_CHECK(n_rows >= 0 && state.n_cached() + n_rows <= shape_.max_rows);
  std::byte* const data = storage_.data();
  const auto next = static_cast<size_t>(state.n_slots);
  int64_t* mass_of_new = nullptr;
  if (int64_t* const all = mass(layer, kv_head); all != nullptr) {
    mass_of_new = all + next;
    std::fill_n(mass_of_new, n_rows, 0);
  }
  if (float* const all = output_norms(layer, kv_head); all != nullptr) {
    std::fill_n(all + next, n_rows, kUnknownNorm);
  }
  if (remote_) {
    remote_->grow(layer, kv_head, state.n_slots, n_rows);
  }
  return {.keys = remote_ ? nullptr : data + range.keys + next * shape_.key_bytes(),
          .values = remote_ ? nullptr : data + range.values + next * shape_.value_bytes(),
          .positions = reinterpret_cast<int32_t*>(data + range.positions) + next,
          .scores = shape_.stores_scores && !remote_
                        ? reinterpret_cast<float*>(data + range.scores) + next
                        : nullptr,
          .mass = mass_of_new,
          .rotations = shape_.stores_rotations
                           ? reinterpret_cast<int32_t*>(data + range.rotations) + next
                           : nullptr};
}

int64_t* Cache::mass(int layer, int kv_head) {
  return shape_.stores_mass && !remote_
             ? reinterpret_cast<int64_t*>(storage_.data() + ranges(layer, kv_head).mass)
             : nullptr;
}

float* Cache::scores(int layer, int kv_head) {
  return shape_.stores_scores && !remote_
             ? reinterpret_cast<float*>(storage_.data() + ranges(layer, kv_head).scores)
             : nullptr;
}

float* Cache::output_norms(int layer, int kv_head) const {
  return shape_.stores_output_norms
             ? reinterpret_cast<float*>(storage_.data() + ranges(layer, kv_head).output_norms)
             : nullptr;
}

void Cache::commit(int layer, int kv_head, int n_rows, const AppendCounts& counts) {
  Head& state = head(layer, kv_head);
  if (shape_.stores_rotations) {
    const int32_t* const rotations = rows(layer, kv_head).rotations + state.n_slots;
    for (int row = 0; row < n_rows; ++row) {
      state.rotation_end = std::max(state.rotation_end, rotations[row] + 1);
    }
  }
  state.n_slots += n_rows;
  state.n_touched = std::max(state.n_touched, state.n_slots);
  state.counts.saturated += counts.saturated;
  state.counts.nonfinite_keys += counts.nonfinite_keys;
  state.counts.nonfinite_values += counts.nonfinite_values;
  if (!state.hidden.empty()) {
    state.hidden.resize(static_cast<size_t>(state.n_slots), kVisible);
  }
}

Cache::History Cache::history(int layer, int kv_head) const {
  const Head& state = head(layer, kv_head);
  return {.n_evicted = state.n_evicted, .trim = state.trim, .counts = state.counts};
}

void Cache::restore(int layer, int kv_head, int n_rows, const History& history) {
  Head& state = head(layer, kv_head);
  WINNOW_CHECK(state.n_slots == 0);
  state.n_evicted = history.n_evicted;
  state.trim = history.trim;
  commit(layer, kv_head, n_rows, history.counts);
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
  return remote_ ? bytes + remote_->committed_bytes() : bytes;
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
  const auto add = [&total](const AppendCounts& counts) {
    total.saturated += counts.saturated;
    total.nonfinite_keys += counts.nonfinite_keys;
    total.nonfinite_values += counts.nonfinite_values;
  };
  for (int layer = 0; layer < shape_.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape_.n_kv_heads; ++kv_head) {
      add(head(layer, kv_head).counts);
      if (remote_) {
        add(remote_->counts(layer, kv_head));
      }
    }
  }
  return total;
}

}  // namespace winnow::cache
