// Which of several arms no other beats: fewer bytes and better answers are what is wanted.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace winnow::eval {

struct CostAndQuality {
  double bytes = 0;    // lower is better
  double quality = 0;  // higher is better
};

// Indices of the points that no other equals or beats in both while beating it in one; by ascending bytes, then by index.
// A point that has a NaN is none of them, and beats none.
std::vector<size_t> pareto_front(std::span<const CostAndQuality> points);

}  // namespace winnow::eval
