#include "policy/protect.h"

#include <algorithm>

#include "policy/order.h"

namespace winnow::policy {
namespace {

// Of n rows of a span, beside n_ends that are sinks or recent.
int n_held_of(const PositionSpan& span, int n, int n_ends) {
  return std::clamp(span.n_least - n_ends, 0, n);
}

}  // namespace

int64_t n_held(const Protection& protection) {
  int64_t n = 0;
  for (const PositionSpan& span : protection.spans) {
    const int n_sinks = std::clamp(protection.n_sink - span.begin, 0, span.end - span.begin);
    n += n_held_of(span, span.end - span.begin - n_sinks, n_sinks);
  }
  return n;
}

Protected protect(const cache::HeadRows& rows, const Protection& protection) {
  const int32_t* const first_other =
      std::lower_bound(rows.positions, rows.positions + rows.n, protection.n_sink);
  int n_first = static_cast<int>(first_other - rows.positions);
  if (rows.hidden != nullptr) {
    n_first = static_cast<int>(std::count(rows.hidden, rows.hidden + n_first, cache::kVisible));
  }
  return {n_first, std::min(protection.n_recent, rows.n_visible() - n_first)};
}

int n_held(const cache::HeadRows& rows, const Protection& protection) {
  if (protection.spans.empty()) {
    return 0;
  }
  const auto n_visible = [&rows](int first, int last) {
    return rows.hidden == nullptr ? last - first
                                  : static_cast<int>(std::count(
                                        rows.hidden + first, rows.hidden + last, cache::kVisible));
  };
  int end = rows.n;  // behind the last row that is not recent
  for (int n_last = protect(rows, protection).n_last; n_last > 0; --end) {
    n_last -= n_visible(end - 1, end);
  }
  const auto first_at = [&rows](int pos) {
    return static_cast<int>(std::lower_bound(rows.positions, rows.positions + rows.n, pos) -
                            rows.positions);
  };
  const int first_other = first_at(protection.n_sink);
  int n = 0;
  for (const PositionSpan& span : protection.spans) {
    const int first = first_at(span.begin);
    const int last = first_at(span.end);
    const int first_middle = std::clamp(first_other, first, last);
    const int last_middle = std::clamp(end, first_middle, last);
    const int n_ends = n_visible(first, first_middle) + n_visible(last_middle, last);
    n += n_held_of(span, n_visible(first_middle, last_middle), n_ends);
  }
  return n;
}

void find_held(const cache::HeadRows& rows, const Protection& protection,
               std::span<const int> visible, std::span<const float> scores, Scratch& scratch,
               std::vector<int>& held) {
  const Protected ends = protect(rows, protection);
  const auto begin = visible.begin() + ends.n_first;
  const auto end = visible.end() - ends.n_last;
  const auto first_at = [&](int pos) {
    return std::lower_bound(visible.begin(), visible.end(), pos,
                            [&](int slot, int p) { return rows.positions[slot] < p; });
  };
  const auto is_better = [&](int a, int b) {
    const uint32_t of_a = ordered(scores[static_cast<size_t>(a)]);
    const uint32_t of_b = ordered(scores[static_cast<size_t>(b)]);
    return of_a != of_b ? of_a > of_b : a < b;
  };
  held.clear();
  for (const PositionSpan& span : protection.spans) {
    const auto first = first_at(span.begin);
    const auto last = first_at(span.end);
    const auto first_middle = std::min(std::max(first, begin), last);
    const auto last_middle = std::max(std::min(last, end), first_middle);
    const auto n_middle = static_cast<int>(last_middle - first_middle);
    const int n = n_held_of(span, n_middle, static_cast<int>(last - first) - n_middle);
    if (n == n_middle) {
      held.insert(held.end(), first_middle, last_middle);
      continue;
    }
    const Scratch::Frame frame(scratch);
    const std::span<int> slots = scratch.take<int>(static_cast<size_t>(n_middle));
    std::copy(first_middle, last_middle, slots.begin());
    std::nth_element(slots.begin(), slots.begin() + n, slots.end(), is_better);
    std::sort(slots.begin(), slots.begin() + n);
    held.insert(held.end(), slots.begin(), slots.begin() + n);
  }
}

}  // namespace winnow::policy
