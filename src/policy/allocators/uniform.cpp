// uniform: every KV head keeps the same number of rows.
//
// Source    none; what methods do that say nothing else
// Rows      n(h) = R / H, the first R mod H heads one more                          (1)
// Symbols   h = KV head of a layer, H = how many there are, R = the layer's rows
// Differs   a head that has fewer rows keeps them all; what it leaves of the layer's rows is divided likewise

#include <cstddef>

#include "policy/allocators.h"

namespace winnow::policy {
namespace {

class Uniform final : public HeadAllocator {
 public:
  Sharing sharing() const override { return Sharing::kNone; }

  void allocate(int64_t n_rows, std::span<const HeadDemand> heads, Scratch& scratch,
                std::span<int> n_keep) const override {
    const double share = static_cast<double>(n_rows) / static_cast<double>(heads.size());
    Division& division = scratch.division;
    division.shares.clear();
    for (const HeadDemand& head : heads) {
      division.shares.push_back({.target = share, .low = head.n_least, .high = head.n});
    }
    divide_rows(n_rows, 1, division);  // Eq. (1)
    for (size_t i = 0; i < heads.size(); ++i) {
      n_keep[i] = static_cast<int>(division.rows[i]);
    }
  }
};

}  // namespace

std::unique_ptr<HeadAllocator> make_uniform(OptionReader& /*reader*/) {
  return std::make_unique<Uniform>();
}

}  // namespace winnow::policy
