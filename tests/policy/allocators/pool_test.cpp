#include <gtest/gtest.h>

#include "policy/policy.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

KeptSlots kept(const std::string& spec, const TinyLayer& first, const TinyLayer& second) {
  const LayerView layers[] = {first.view(), second.view()};
  kernels::ParallelFor parallel(1);
  Choice choice;
  return Policy::parse(spec).choose(layers, parallel, choice) ? choice.kept : KeptSlots{};
}

TEST(Pool, TheBestRowsOfAllLayersStay) {
  const TinyLayer first({TinyHead::with_norms({1, 2, 3, 4}), TinyHead::with_norms({5, 6, 7, 8})},
                        0);
  const TinyLayer second({TinyHead::with_norms({9, 9, 9, 9}), TinyHead::with_norms({9, 0, 9, 9})},
                         1);
  EXPECT_EQ(kept("knorm+pool:budget=2,n_sink=0,n_recent=0", first, second),
            (KeptSlots{{0, 1, 2, 3}, {0, 1}, {0}, {1}}));
  EXPECT_EQ(kept("knorm+pool:budget=2,n_sink=0,n_recent=0,budget_floor=1", first, second),
            (KeptSlots{{0, 1}, {0, 1}, {0, 1}, {0, 1}}));
  EXPECT_EQ(kept("knorm+pool:budget=4,n_sink=0,n_recent=0", first, second), KeptSlots{});
}

TEST(Pool, NeedsAllLayersAtOnce) {
  EXPECT_TRUE(Policy::parse("knorm+pool:budget=9").needs_all_layers());
  for (const char* spec :
       {"full", "knorm:budget=9", "knorm+adakv:budget=9", "knorm+pyramid:budget=9"}) {
    EXPECT_FALSE(Policy::parse(spec).needs_all_layers()) << spec;
  }
}

}  // namespace
}  // namespace winnow::policy
