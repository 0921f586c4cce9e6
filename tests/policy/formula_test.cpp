// Which policies choose by a formula alone, and how many rows their heads keep then.

#include <gtest/gtest.h>

#include "policy/policy.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Of = kernels::RowFormula::Of;

TEST(Formula, SaysWhatScoresAreOf) {
  const Policy low = Policy::parse("knorm:budget=8");
  ASSERT_NE(low.formula(), nullptr);
  EXPECT_EQ(low.formula()->of, Of::kStaticScore);
  EXPECT_EQ(low.formula()->factor, -1.0F);
  EXPECT_EQ(low.formula()->n_asked(), 0);
  const Policy high = Policy::parse("knorm:budget=8,keep=high");
  EXPECT_EQ(high.formula()->factor, 1.0F);
  const Policy mass = Policy::parse("h2o:budget=8,observed=true");
  EXPECT_EQ(mass.formula()->of, Of::kColumnMass);
  EXPECT_TRUE(mass.formula()->is_per_query);
  const Policy last = Policy::parse("tova:budget=8");
  EXPECT_EQ(last.formula()->of, Of::kLastQuery);
  EXPECT_EQ(last.formula()->n_asked(), 1);
  const Policy window = Policy::parse(
      "snapkv:budget=8,obs_window=16,kernel=5,pool=avg,group=max,reduce_first=true,force_window="
      "false");
  const kernels::RowFormula& asked = *window.formula();
  EXPECT_EQ(asked.of, Of::kLastQueries);
  EXPECT_EQ(asked.n_asked(), 16);
  EXPECT_EQ(asked.pool_width, 5);
  EXPECT_FALSE(asked.pools_greatest);
  EXPECT_TRUE(asked.takes_greatest_head);
  EXPECT_TRUE(asked.pools_heads);
  EXPECT_FALSE(asked.keeps_own_rows);
}

TEST(Formula, IsNoneWhereSomethingElseHasASay) {
  for (const char* spec :
       {"full", "keydiff:budget=8", "streaming:budget=8", "knorm+adakv:budget=8",
        "knorm+rank:budget=8", "snapkv+criticalkv:budget=8", "knorm+squeeze:budget=8",
        "knorm+cake:budget=8", "knorm+merge:budget=8", "knorm:budget=8,positions=contiguous",
        "knorm:budget=8,positions=stalled", "tova:budget=8,per_layer=true",
        "snapkv:budget=8,group=union", "snapkv:budget=8,value_power=1",
        "snapkv:budget=8,entropy_discount=1"}) {
    EXPECT_EQ(Policy::parse(spec).formula(), nullptr) << spec;
  }
  for (const char* spec : {"knorm+pyramid:budget=8", "h2o:budget=8,decay=0.5"}) {
    EXPECT_NE(Policy::parse(spec).formula(), nullptr) << spec;
  }
}

// As many rows of each head as choose() keeps.
TEST(Formula, CountsWhatIsKept) {
  kernels::ParallelFor parallel(1);
  for (unsigned seed = 0; seed < 30; ++seed) {
    std::vector<std::unique_ptr<TinyLayer>> layers;
    std::vector<LayerView> views;
    for (int layer = 0; layer < 3; ++layer) {
      const int n = 20 + static_cast<int>(seed * 7 % 60);
      layers.push_back(std::make_unique<TinyLayer>(
          std::vector<TinyHead>{TinyHead::random(n, 2 * seed), TinyHead::random(n, 2 * seed + 1)},
          layer));
      views.push_back(layers.back()->view());
    }
    for (const char* spec :
         {"knorm:budget=30", "knorm:budget=9,n_sink=2,n_recent=3", "knorm+pyramid:budget=30"}) {
      const Policy policy = Policy::parse(spec);
      Choice chosen;
      Choice counted;
      const bool is_cut = policy.choose(views, parallel, chosen);
      ASSERT_EQ(policy.count(views, parallel, counted), is_cut) << spec;
      for (size_t head = 0; is_cut && head < chosen.kept.size(); ++head) {
        EXPECT_EQ(std::ssize(chosen.kept[head]), counted.n_keep[head]) << spec;
        EXPECT_EQ(counted.demands[head].n, counted.heads[head].rows().n);
      }
    }
  }
}

}  // namespace
}  // namespace winnow::policy
