#include "kernels/page_reads.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "ggml-cpu.h"
#include "kernels/row_kernels.h"

namespace winnow::kernels {
namespace {

// Elements of a key, and infinities: nothing is lost.
void store(std::span<const float> elements, cache::RowType type, std::byte* out) {
  const auto n = static_cast<int64_t>(elements.size());
  if (type == cache::RowType::kF16) {
    ggml_cpu_fp32_to_fp16(elements.data(), reinterpret_cast<ggml_fp16_t*>(out), n);
  } else if (type == cache::RowType::kBf16) {
    ggml_cpu_fp32_to_bf16(elements.data(), reinterpret_cast<ggml_bf16_t*>(out), n);
  } else {
    std::memcpy(out, elements.data(), elements.size_bytes());
  }
}

}  // namespace

PageRule PageRule::settled(int n_kept, int head_dim) const {
  PageRule rule = *this;
  if (n_read == 0) {
    return rule;
  }
  rule.n_read = 0;
  if (n_kept <= n_read) {
    return rule;
  }
  const double ratio = static_cast<double>(n_kept) / static_cast<double>(n_read);
  rule.page_rows = static_cast<int>(std::min(std::floor(ratio), std::ceil(std::sqrt(ratio))));
  rule.n_channels =
      std::clamp(static_cast<int>(std::lround(head_dim * rule.page_rows / ratio)), 1, head_dim);
  const int n_rows = (n_read + 1) / 2;
  rule.n_pages = (n_rows + rule.page_rows - 1) / rule.page_rows;
  return rule;
}

PageReads::PageReads(const Shape& shape) : shape_(shape) {
  WINNOW_CHECK(shape.rule.n_pages > 0 && std::ssize(shape.is_watched) == shape.n_layers);
  heads_.resize(static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads));
}

size_t PageReads::row_bytes() const {
  return static_cast<size_t>(shape_.head_dim) * cache::element_bytes(shape_.key_type);
}

std::span<const RowRun> PageReads::choose(int layer, int kv_head, const cache::HeadRows& rows,
                                          std::span<const float> queries, Scratch& scratch) {
  if (!shape_.is_watched[static_cast<size_t>(layer)]) {
    return {};
  }
  Head& head = heads_[static_cast<size_t>(layer) * static_cast<size_t>(shape_.n_kv_heads) +
                      static_cast<size_t>(kv_head)];
  const auto n_rows = static_cast<size_t>(rows.n_visible());
  const size_t n_before = n_rows == 0 ? 0 : (n_rows - 1) / page_rows();  // pages, the newest aside
  const auto n_chosen = static_cast<size_t>(shape_.rule.n_pages) - 1;
  head.tally.n_held += static_cast<int64_t>(n_rows);
  if (layer < shape_.rule.n_whole_layers || n_before <= n_chosen) {
    head.tally.n_read += static_cast<int64_t>(n_rows);
    return {};
  }
  const Scratch::Frame frame(scratch);
  const std::span<const int> visible =
      cache::visible_slots(rows, scratch.take<int>(static_cast<size_t>(rows.n)));
  bound(head, rows, visible, n_before, scratch);
  const std::span<float> reach = scratch.take<float>(n_before);
  rank(head, queries, reach, scratch);
  const std::span<size_t> pages = scratch.take<size_t>(n_before);
  std::iota(pages.begin(), pages.end(), size_t{0});
  const auto end = pages.begin() + static_cast<std::ptrdiff_t>(n_chosen);
  std::nth_element(pages.begin(), end, pages.end(), [&](size_t a, size_t b) {
    return reach[a] != reach[b] ? reach[a] > reach[b] : a < b;
  });
  std::sort(pages.begin(), end);
  pages[n_chosen] = n_before;  // there is one more than chosen
  head.runs.clear();
  for (const size_t page : pages.first(n_chosen + 1)) {
    const size_t first = page * page_rows();
    const size_t last = std::min(first + page_rows(), n_rows);
    head.tally.n_read += static_cast<int64_t>(last - first);
    if (!head.runs.empty() && head.runs.back().last == visible[first]) {
      head.runs.back().last = visible[last - 1] + 1;
    } else {
      head.runs.push_back({.first = visible[first], .last = visible[last - 1] + 1});
    }
  }
  return head.runs;
}

void PageReads::bound(Head& head, const cache::HeadRows& rows, std::span<const int> visible,
                      size_t n_pages, Scratch& scratch) const {
  const Scratch::Frame frame(scratch);
  const std::span<float> low = scratch.take<float>(static_cast<size_t>(shape_.head_dim));
  const std::span<float> high = scratch.take<float>(static_cast<size_t>(shape_.head_dim));
  const size_t n_bounded = std::min(head.positions.size() / page_rows(), n_pages);
  head.positions.resize(n_pages * page_rows());
  head.low.resize(n_pages * row_bytes());
  head.high.resize(n_pages * row_bytes());
  for (size_t page = 0; page < n_pages; ++page) {
    const std::span<const int> slots = visible.subspan(page * page_rows(), page_rows());
    int32_t* const positions = head.positions.data() + page * page_rows();
    const int32_t* const now = rows.positions + slots.front();
    const bool is_whole = slots.back() - slots.front() + 1 == shape_.rule.page_rows;
    const auto position_at = [&](int slot) { return rows.positions[slot]; };
    if (page < n_bounded && (is_whole ? std::equal(now, now + page_rows(), positions)
                                      : std::ranges::equal(slots, std::span(positions, page_rows()),
                                                           {}, position_at))) {
      continue;
    }
    for (size_t i = 0; i < page_rows(); ++i) {
      positions[i] = rows.positions[slots[i]];
    }
    channel_bounds(keys_of(rows), slots, low, high, scratch);
    store(low, shape_.key_type, head.low.data() + page * row_bytes());
    store(high, shape_.key_type, head.high.data() + page * row_bytes());
  }
}

// Σ_c max(q_c low_c, q_c high_c) is the positive elements of q times high, and its negative ones times low.
void PageReads::rank(const Head& head, std::span<const float> queries, std::span<float> reach,
                     Scratch& scratch) const {
  const Scratch::Frame frame(scratch);
  const auto dim = static_cast<size_t>(shape_.head_dim);
  const std::span<float> upwards = scratch.take_filled(dim, 0.0F);
  const std::span<float> downwards = scratch.take_filled(dim, 0.0F);
  for (size_t i = 0; i < queries.size(); ++i) {
    (queries[i] < 0 ? downwards : upwards)[i % dim] += queries[i];
  }
  keep_strong_channels(upwards, downwards, scratch);
  const std::span<int> pages = scratch.take<int>(reach.size());
  std::iota(pages.begin(), pages.end(), 0);
  const std::span<float> below = scratch.take<float>(reach.size());
  const auto rows_of = [&](const std::vector<std::byte>& bounds) {
    return RowVectors{
        .elements = bounds.data(), .type = shape_.key_type, .head_dim = shape_.head_dim};
  };
  row_dots(rows_of(head.high), pages, upwards, reach, scratch);
  row_dots(rows_of(head.low), pages, downwards, below, scratch);
  for (size_t page = 0; page < reach.size(); ++page) {
    reach[page] += below[page];
    if (std::isnan(reach[page])) {
      reach[page] = -std::numeric_limits<float>::infinity();
    }
  }
}

// Of equal channels the first count.
void PageReads::keep_strong_channels(std::span<float> upwards, std::span<float> downwards,
                                     Scratch& scratch) const {
  const auto n_channels = static_cast<size_t>(shape_.rule.n_channels);
  if (n_channels == 0 || n_channels >= upwards.size()) {
    return;
  }
  const Scratch::Frame frame(scratch);
  const std::span<size_t> channels = scratch.take<size_t>(upwards.size());
  std::iota(channels.begin(), channels.end(), size_t{0});
  const auto strength = [&](size_t c) {
    const float sum = upwards[c] - downwards[c];
    return std::isnan(sum) ? 0 : sum;
  };
  std::ranges::nth_element(channels, channels.begin() + static_cast<std::ptrdiff_t>(n_channels),
                           [&](size_t a, size_t b) {
                             return strength(a) != strength(b) ? strength(a) > strength(b) : a < b;
                           });
  for (const size_t c : channels.subspan(n_channels)) {
    upwards[c] = downwards[c] = 0;
  }
}

PageReads::Tally PageReads::tally() const {
  Tally sum;
  for (const Head& head : heads_) {
    sum.n_read += head.tally.n_read;
    sum.n_held += head.tally.n_held;
  }
  return sum;
}

size_t PageReads::bytes() const {
  size_t sum = 0;
  for (const Head& head : heads_) {
    sum += head.positions.size() * sizeof(int32_t) + head.low.size() + head.high.size();
  }
  return sum;
}

size_t PageReads::bytes(const Shape& shape, int n_slots) {
  if (!shape.rule.is_wanted()) {
    return 0;
  }
  const auto n_layers = static_cast<size_t>(
      std::count(shape.is_watched.begin() + std::min(shape.rule.n_whole_layers, shape.n_layers),
                 shape.is_watched.end(), true));
  const size_t n_pages = static_cast<size_t>(n_slots) / static_cast<size_t>(shape.rule.page_rows);
  const size_t page_bytes =
      static_cast<size_t>(shape.rule.page_rows) * sizeof(int32_t) +
      2 * static_cast<size_t>(shape.head_dim) * cache::element_bytes(shape.key_type);
  return n_layers * static_cast<size_t>(shape.n_kv_heads) * n_pages * page_bytes;
}

}  // namespace winnow::kernels
