// adakv: the heads of a layer share its budget, so that heads whose attention is spread wide keep more rows.
//
// Source    Ada-KV: Feng et al., 2024, arXiv 2407.11550; as in kvpress 0.5.4
// Rows      every head keeps its m = floor(budget_floor R / H) best rows; of all others of the layer the best stay, R rows
//           in all                                                                  (1)
// Symbols   R = the layer's rows, H = its KV heads
// Needs     scores that are comparable between the heads of a layer; it does not scale them
// Differs   protected rows count as a head's best whatever their score, and m is at least one more than they are. The
//           authors' code rounds a mixture of counts instead, whose sum may miss R

#include <cstddef>

#include "policy/allocators.h"
#include "policy/pooling.h"

namespace winnow::policy {
namespace {

struct AdakvOptions {
  float budget_floor = 0.2F;  // Eq. (1)

  template <typename Visitor>
  void visit(Visitor& v) {
    v(budget_floor, "budget_floor", 0.0F, 1.0F,
      "the share of an equal part of the layer's rows that every head keeps; 1: all the same");
  }
};

class Adakv final : public HeadAllocator {
 public:
  explicit Adakv(const AdakvOptions& options) : options_(options) {}

  Sharing sharing() const override { return Sharing::kLayer; }

  void allocate(int64_t n_rows, std::span<const HeadDemand> heads, Scratch& scratch,
                std::span<int> n_keep) const override {
    pool_rows(n_rows, options_.budget_floor, heads, scratch.pool, n_keep);
  }

 private:
  AdakvOptions options_;
};

}  // namespace

std::unique_ptr<HeadAllocator> make_adakv(OptionReader& reader) {
  return std::make_unique<Adakv>(read_options<AdakvOptions>(reader));
}

}  // namespace winnow::policy
