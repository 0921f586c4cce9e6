#include "eval/pareto.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace winnow::eval {

std::vector<size_t> pareto_front(std::span<const CostAndQuality> points) {
  std::vector<size_t> order;
  for (size_t i = 0; i < points.size(); ++i) {
    if (!std::isnan(points[i].bytes) && !std::isnan(points[i].quality)) {
      order.push_back(i);
    }
  }
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::tuple(points[i].bytes, -points[i].quality, i); });
  std::vector<size_t> front;
  for (const size_t i : order) {
    const CostAndQuality& point = points[i];
    const bool is_first = front.empty();
    const CostAndQuality& last = points[is_first ? i : front.back()];
    const bool is_equal = point.bytes == last.bytes && point.quality == last.quality;
    if (is_first || is_equal || point.quality > last.quality) {
      front.push_back(i);
    }
  }
  return front;
}

}  // namespace winnow::eval
