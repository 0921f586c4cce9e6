#include "policy/protect.h"

#include <algorithm>

namespace winnow::policy {

int64_t n_positions(const Protection& protection) {
  int64_t n = 0;
  for (const PositionSpan& span : protection.spans) {
    n += std::max(0, span.end - std::max(span.begin, protection.n_sink));
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

bool is_in_spans(std::span<const PositionSpan> spans, int pos) {
  const auto after = std::upper_bound(spans.begin(), spans.end(), pos,
                                      [](int p, const PositionSpan& s) { return p < s.begin; });
  return after != spans.begin() && pos < (after - 1)->end;
}

int n_in_spans(const cache::HeadRows& rows, const Protection& protection) {
  if (protection.spans.empty()) {
    return 0;
  }
  const auto is_visible = [&rows](int slot) {
    return rows.hidden == nullptr || rows.hidden[slot] == cache::kVisible;
  };
  int end = rows.n;  // behind the last row that is not recent
  for (int n_last = protect(rows, protection).n_last; n_last > 0; --end) {
    n_last -= is_visible(end - 1) ? 1 : 0;
  }
  const auto first_at = [&](int pos) {
    return static_cast<int>(std::lower_bound(rows.positions, rows.positions + end, pos) -
                            rows.positions);
  };
  int n = 0;
  for (const PositionSpan& span : protection.spans) {
    const int last = first_at(span.end);
    for (int slot = first_at(std::max(span.begin, protection.n_sink)); slot < last; ++slot) {
      n += is_visible(slot) ? 1 : 0;
    }
  }
  return n;
}

}  // namespace winnow::policy
