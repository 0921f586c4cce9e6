// rank: a row's place among those of its head, in the place of its score.
//
// Score     s'(j) = (rows with a lower score + (rows with an equal score + 1) / 2) / n               (1)
//           1 for the best of different scores, 1/n for the worst; equal scores share the mean of their places
// Symbols   j = row; n = the head's rows whose score is a number
// Cost      sorts the head's scores: n log n
// Differs   all heads have the same scores then, so where they hold equally many rows, adakv and pool give all alike.
//           It is meant for what multiplies scores

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "policy/order.h"
#include "policy/transforms.h"

namespace winnow::policy {
namespace {

class Rank final : public Normalizer {
 public:
  // Infinities are numbers like others here, and get a rank.
  void normalize(std::span<float> scores, Scratch& scratch) const override {
    const Scratch::Frame frame(scratch);
    const std::span<uint64_t> keys = scratch.take<uint64_t>(scores.size());
    size_t n = 0;
    for (size_t i = 0; i < scores.size(); ++i) {
      if (!std::isnan(scores[i])) {
        keys[n++] = (uint64_t{ordered(scores[i])} << 32) | i;
      }
    }
    std::sort(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(n));
    for (size_t first = 0; first < n;) {
      size_t end = first + 1;
      while (end < n && keys[end] >> 32 == keys[first] >> 32) {
        ++end;
      }
      const double place = static_cast<double>(first) + static_cast<double>(end - first + 1) / 2;
      for (; first < end; ++first) {
        scores[keys[first] & UINT32_MAX] =
            static_cast<float>(place / static_cast<double>(n));  // Eq. (1)
      }
    }
  }
};

}  // namespace

std::unique_ptr<Normalizer> make_rank(OptionReader& /*reader*/) {
  return std::make_unique<Rank>();
}

}  // namespace winnow::policy
