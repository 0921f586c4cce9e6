#include "policy/golden_fixture.h"

#include <gtest/gtest.h>

#include <numeric>

namespace winnow::policy::golden {
namespace {

TEST(GoldenFixture, IsTheOneThatThePublishedScoresAreOf) {
  const std::vector<float> k = keys();
  const std::vector<float> v = values();
  EXPECT_NEAR(k[0], -0.5270889, 1e-7);
  EXPECT_NEAR(k[1], -0.2614587, 1e-7);
  EXPECT_NEAR(k[2], 0.0084841, 1e-7);
  EXPECT_NEAR(std::accumulate(k.begin(), k.end(), 0.0), 8.056290, 1e-5);
  EXPECT_NEAR(std::accumulate(v.begin(), v.end(), 0.0), 23.199016, 1e-5);
}

// kvpress keeps half of the 24 rows of each head; streaming, four sinks and the rest.
TEST(GoldenFixture, MethodsKeepWhatKvpressKeeps) {
  EXPECT_EQ(kept_by("knorm:budget=12,n_sink=0,n_recent=0"),
            (KeptSlots{{0, 3, 7, 10, 12, 13, 14, 16, 17, 19, 20, 21},
                       {0, 2, 5, 6, 8, 10, 12, 15, 16, 18, 19, 22}}));
  EXPECT_EQ(kept_by("keydiff:budget=12,n_sink=0,n_recent=0"),
            (KeptSlots{{0, 1, 2, 4, 7, 11, 13, 15, 16, 18, 22, 23},
                       {2, 3, 4, 5, 6, 8, 9, 15, 19, 21, 22, 23}}));
  EXPECT_EQ(kept_by("lagkv:budget=12,n_sink=2,n_recent=0,lag=4"),
            (KeptSlots{{0, 1, 2, 9, 11, 15, 18, 19, 20, 21, 22, 23},
                       {0, 1, 3, 9, 10, 16, 18, 19, 20, 21, 22, 23}}));
  EXPECT_EQ(kept_by("streaming:budget=12,n_sink=4,n_recent=0"),
            (KeptSlots{{0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23},
                       {0, 1, 2, 3, 16, 17, 18, 19, 20, 21, 22, 23}}));
}

TEST(GoldenFixture, MethodsThatLookAtKeysAndValuesKeepWhatKvpressKeeps) {
  EXPECT_EQ(kept_by("cur:budget=12,n_sink=4,n_recent=0"),
            (KeptSlots{{0, 1, 2, 3, 6, 16, 17, 18, 19, 20, 22, 23},
                       {0, 1, 2, 3, 9, 16, 17, 19, 20, 21, 22, 23}}));
  EXPECT_EQ(kept_by("capkv:budget=12,n_sink=4,n_recent=0"),
            (KeptSlots{{0, 1, 2, 3, 4, 7, 9, 16, 17, 18, 22, 23},
                       {0, 1, 2, 3, 6, 7, 8, 10, 11, 20, 22, 23}}));
}

TEST(GoldenFixture, MethodsThatLookAtAttentionKeepWhatKvpressKeeps) {
  EXPECT_EQ(kept_by("snapkv:budget=12,n_sink=0,n_recent=0,obs_window=4,kernel=5,pool=avg"),
            (KeptSlots{{2, 3, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23},
                       {2, 3, 5, 11, 13, 15, 16, 17, 20, 21, 22, 23}}));
  EXPECT_EQ(kept_by("finch:budget=12,n_sink=0,n_recent=0,obs_window=4"),
            (KeptSlots{{0, 2, 3, 10, 11, 13, 15, 16, 20, 21, 22, 23},
                       {1, 3, 5, 9, 13, 17, 18, 19, 20, 21, 22, 23}}));
  EXPECT_EQ(kept_by("tova:budget=12,n_sink=0,n_recent=1,per_layer=true"),
            (KeptSlots{{0, 1, 6, 8, 9, 10, 11, 13, 14, 16, 21, 23},
                       {0, 1, 6, 8, 9, 10, 11, 13, 14, 16, 21, 23}}));
  EXPECT_EQ(
      kept_by("h2o:budget=12,n_sink=0,n_recent=0,observed=true"),
      (KeptSlots{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13, 21}}));
  EXPECT_EQ(kept_by("h2o:budget=12,n_sink=0,n_recent=6"),
            (KeptSlots{{0, 1, 2, 3, 4, 5, 18, 19, 20, 21, 22, 23},
                       {0, 1, 2, 3, 4, 5, 18, 19, 20, 21, 22, 23}}));
}

// kvpress takes the first four rows for sinks.
TEST(GoldenFixture, ExpectedAttentionKeepsWhatKvpressKeeps) {
  const std::string own = "expected-attention:budget=12,n_sink=4,n_recent=0";
  EXPECT_EQ(kept_by(own), (KeptSlots{{0, 1, 2, 3, 5, 6, 9, 11, 18, 19, 20, 22},
                                     {0, 1, 2, 3, 8, 9, 10, 12, 16, 20, 21, 23}}));
  EXPECT_EQ(kept_by(own + ",use_covariance=false,epsilon=0.02"),
            (KeptSlots{{0, 1, 2, 3, 5, 6, 9, 11, 17, 19, 20, 22},
                       {0, 1, 2, 3, 8, 9, 10, 12, 16, 20, 21, 23}}));
  EXPECT_EQ(kept_by("expected-attention+adakv:budget=12,n_sink=4,n_recent=0,epsilon=0.01"),
            (KeptSlots{{0, 1, 2, 3, 5, 6, 9, 11, 19, 20, 22},
                       {0, 1, 2, 3, 8, 9, 10, 12, 15, 16, 20, 21, 23}}));
}

// kvpress pools the heads of a layer with 0.2 of each head's share kept.
TEST(GoldenFixture, HeadsShareALayersRowsAsInKvpress) {
  EXPECT_EQ(kept_by("snapkv+adakv:budget=12,n_sink=0,n_recent=0,obs_window=4,kernel=5,pool=avg"),
            (KeptSlots{{2, 3, 4, 9, 11, 12, 13, 14, 15, 16, 20, 21, 22, 23},
                       {2, 3, 5, 11, 15, 17, 20, 21, 22, 23}}));
}

}  // namespace
}  // namespace winnow::policy::golden
