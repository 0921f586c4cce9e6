// pool: all heads of all layers share one budget.
//
// Source    one pool over heads and layers, as KV-Compress (Rehg, 2024, arXiv 2410.00161) has it for blocks of rows
// Rows      every head keeps its m = floor(budget_floor R / H) best rows; of all others the best stay, R rows in all  (1)
// Symbols   R = the rows of all layers, H = KV heads of all layers
// Needs     scores that are comparable between heads and layers; it does not scale them. All layers at once: a prompt
//           cannot be read layer by layer
// Differs   single rows, not blocks; protected rows count as a head's best, and m is at least one more than they are

#include <cstddef>

#include "policy/allocators.h"
#include "policy/pooling.h"

namespace winnow::policy {
namespace {

struct PoolOptions {
  float budget_floor = 0;  // Eq. (1)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(budget_floor, "budget_floor", 0.0F, 1.0F,
      "the share of an equal part of all rows that every head keeps; 1: all the same");
  }
};

class Pool final : public HeadAllocator {
 public:
  explicit Pool(const PoolOptions& options) : options_(options) {}

  Sharing sharing() const override { return Sharing::kAll; }

  void allocate(int64_t n_rows, std::span<const HeadDemand> heads, Scratch& scratch,
                std::span<int> n_keep) const override {
    pool_rows(n_rows, options_.budget_floor, heads, scratch.pool, n_keep);
  }

 private:
  PoolOptions options_;
};

}  // namespace

std::unique_ptr<HeadAllocator> make_pool(OptionReader& reader) {
  return std::make_unique<Pool>(read_options<PoolOptions>(reader));
}

}  // namespace winnow::policy
