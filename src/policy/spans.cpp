#include "policy/spans.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/text.h"

namespace winnow::policy {
namespace {

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789.") == std::string_view::npos;
}

bool is_floor(std::string_view text) {
  return is_number(text.ends_with('%') ? text.substr(0, text.size() - 1) : text);
}

template <class Number>
bool read(std::string_view text, Number& number) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

int length(const PositionSpan& span) {
  return span.end - span.begin;
}

// The share of a span that stays, of so many of its positions, rounded up.
int share_of(const PositionSpan& span, int n_positions) {
  if (span.n_least >= length(span)) {
    return n_positions;
  }
  return static_cast<int>((int64_t{span.n_least} * n_positions + length(span) - 1) / length(span));
}

}  // namespace

int Floor::of(int n_positions) const {
  if (rows > 0) {
    return std::min(rows, n_positions);
  }
  const double exact = percent * n_positions / 100;
  return static_cast<int>(std::ceil(exact - exact * 1e-12));  // not up for a rounding in binary
}

std::string Floor::to_string() const {
  return rows > 0 ? std::to_string(rows) : number_text(percent) + "%";
}

Floor parse_floor(std::string_view text) {
  constexpr const char* kAllowed = " (allowed: rows as in 8, a share as in 50%, up to 100%)";
  const auto refuse = [&](const char* what) {
    throw Error(ErrorCode::kInvalidArgument,
                "the floor '" + std::string(text) + "' " + what + kAllowed);
  };
  Floor floor;
  if (text.ends_with('%')) {
    if (!is_floor(text) || !read(text.substr(0, text.size() - 1), floor.percent)) {
      refuse("is not a percentage");
    }
    if (!(floor.percent > 0 && floor.percent <= 100)) {
      refuse("is out of range");
    }
    return floor;
  }
  if (!is_number(text) || text.find('.') != std::string_view::npos) {
    refuse("is not a whole number of rows");
  }
  if (!read(text, floor.rows) || floor.rows == 0) {
    refuse("is out of range");
  }
  return floor;
}

FlooredText split_floor(std::string_view text) {
  const size_t at = text.rfind('@');
  if (at == std::string_view::npos || !is_floor(text.substr(at + 1))) {
    return {text, {}};
  }
  return {text.substr(0, at), parse_floor(text.substr(at + 1))};
}

std::vector<PositionSpan> disjoint(std::vector<PositionSpan> spans) {
  std::erase_if(spans, [](const PositionSpan& span) { return span.begin >= span.end; });
  std::ranges::sort(spans, {}, &PositionSpan::begin);
  std::vector<int> borders;
  for (const PositionSpan& span : spans) {
    borders.push_back(span.begin);
    borders.push_back(span.end);
  }
  std::ranges::sort(borders);
  borders.erase(std::ranges::unique(borders).begin(), borders.end());

  std::vector<PositionSpan> parts;
  std::vector<PositionSpan> open;  // those that hold the part
  auto next = spans.begin();
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const int begin = borders[i];
    const int end = borders[i + 1];
    std::erase_if(open, [begin](const PositionSpan& span) { return span.end <= begin; });
    for (; next != spans.end() && next->begin == begin; ++next) {
      open.push_back(*next);
    }
    int n_least = 0;
    for (const PositionSpan& span : open) {
      n_least = std::max(n_least, share_of(span, end - begin));
    }
    if (n_least == 0) {
      continue;
    }
    const bool is_whole = n_least == end - begin;
    if (is_whole && !parts.empty() && parts.back().end == begin &&
        parts.back().n_least == INT_MAX) {
      parts.back().end = end;
    } else {
      parts.push_back({begin, end, is_whole ? INT_MAX : n_least});
    }
  }
  return parts;
}

const PositionSpan* span_at(std::span<const PositionSpan> spans, int pos) {
  const auto after = std::upper_bound(spans.begin(), spans.end(), pos,
                                      [](int p, const PositionSpan& s) { return p < s.begin; });
  return after != spans.begin() && pos < (after - 1)->end ? &*(after - 1) : nullptr;
}

}  // namespace winnow::policy
