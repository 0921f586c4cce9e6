// Spans of positions that always stay, under every allocator.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "base/error.h"
#include "policy/tiny_layer.h"
#include "support/policies.h"

namespace winnow::policy {
namespace {

class Draw {
 public:
  explicit Draw(unsigned seed) : random_(seed) {}
  int operator()(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random_);
  }

 private:
  std::mt19937 random_;
};

std::vector<PositionSpan> draw_spans(Draw& draw, int n_positions) {
  std::vector<PositionSpan> spans;
  for (int begin = draw(0, 20); begin < n_positions && spans.size() < 3;) {
    const int end = std::min(n_positions, begin + draw(1, 8));
    spans.push_back({begin, end});
    begin = end + draw(1, 30);
  }
  return spans;
}

TEST(Spans, StayAndTheSumIsExact) {
  Draw draw(1);
  for (int trial = 0; trial < 60; ++trial) {
    const int n = draw(60, 150);
    const int n_kv_heads = draw(1, 3);
    std::vector<std::unique_ptr<TinyLayer>> layers;
    std::vector<LayerView> views;
    for (int layer = 0; layer < 3; ++layer) {
      std::vector<TinyHead> heads;
      for (int head = 0; head < n_kv_heads; ++head) {
        heads.push_back(TinyHead::random(n, static_cast<unsigned>(draw(0, 1 << 20))));
      }
      layers.push_back(std::make_unique<TinyLayer>(std::move(heads), layer));
      views.push_back(layers.back()->view());
    }
    const std::vector<PositionSpan> spans = draw_spans(draw, n);
    for (const std::string& spec :
         test::all_policies(50, {.n_layers = 3, .n_heads = 8, .n_kv_heads = 8, .head_dim = 8})) {
      Policy policy = Policy::parse(spec + ",n_sink=2,n_recent=3");
      BudgetContext context;
      context.spans = spans;
      policy.resolve(context);
      kernels::ParallelFor parallel(2);
      Choice choice;
      ASSERT_TRUE(policy.choose(views, parallel, choice)) << spec;
      size_t n_kept = 0;
      for (const std::vector<int>& kept : choice.kept) {
        ASSERT_TRUE(std::is_sorted(kept.begin(), kept.end())) << spec;
        const std::set<int> slots(kept.begin(), kept.end());  // slots are positions
        ASSERT_EQ(slots.size(), kept.size()) << spec;
        for (const PositionSpan& span : spans) {
          for (int pos = span.begin; pos < span.end; ++pos) {
            ASSERT_TRUE(slots.count(pos) == 1) << spec << " lost " << pos;
          }
        }
        n_kept += kept.size();
      }
      ASSERT_EQ(n_kept, 50 * choice.kept.size()) << spec;
    }
  }
}

// A floor holds under every policy, whatever the scores, and the sum is exact.
TEST(Spans, WithAFloorKeepAtLeastThat) {
  Draw draw(2);
  for (int trial = 0; trial < 30; ++trial) {
    const int n = draw(80, 150);
    std::vector<std::unique_ptr<TinyLayer>> layers;
    std::vector<LayerView> views;
    for (int layer = 0; layer < 2; ++layer) {
      std::vector<TinyHead> heads;
      for (int head = 0; head < 2; ++head) {
        heads.push_back(TinyHead::random(n, static_cast<unsigned>(draw(0, 1 << 20))));
        if (trial % 3 == 0) {
          heads.back().norms[static_cast<size_t>(draw(0, n - 1))] =
              trial % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                             : std::numeric_limits<float>::infinity();
        }
      }
      layers.push_back(std::make_unique<TinyLayer>(std::move(heads), layer));
      views.push_back(layers.back()->view());
    }
    std::vector<PositionSpan> spans = draw_spans(draw, n);
    for (PositionSpan& span : spans) {
      span.n_least = draw(1, span.end - span.begin + 1);
    }
    for (const std::string& spec :
         test::all_policies(50, {.n_layers = 3, .n_heads = 8, .n_kv_heads = 8, .head_dim = 8})) {
      Policy policy = Policy::parse(spec + ",n_sink=2,n_recent=3");
      BudgetContext context;
      context.spans = spans;
      policy.resolve(context);
      kernels::ParallelFor parallel(2);
      Choice choice;
      ASSERT_TRUE(policy.choose(views, parallel, choice)) << spec;
      size_t n_kept = 0;
      for (const std::vector<int>& kept : choice.kept) {
        ASSERT_TRUE(std::is_sorted(kept.begin(), kept.end())) << spec;
        for (const PositionSpan& span : spans) {
          const auto n_in_span = std::ranges::count_if(
              kept, [&](int slot) { return slot >= span.begin && slot < span.end; });
          ASSERT_GE(n_in_span, std::min(span.n_least, span.end - span.begin)) << spec;
        }
        n_kept += kept.size();
      }
      ASSERT_EQ(n_kept, 50 * choice.kept.size()) << spec;
    }
  }
}

// Of a span with a floor the best stay; sinks and recent rows in it count.
TEST(Spans, WithAFloorKeepTheirBest) {
  std::vector<float> norms;
  for (int i = 0; i < 40; ++i) {
    norms.push_back(static_cast<float>(i < 20 ? 100 + i : i));
  }
  const TinyLayer layer({TinyHead::with_norms(norms)});
  const auto kept_with = [&](std::vector<PositionSpan> spans) {
    Policy policy = Policy::parse("knorm:budget=10,n_sink=1,n_recent=1");
    BudgetContext context;
    context.spans = std::move(spans);
    policy.resolve(context);
    return layer.kept_by(policy);
  };
  EXPECT_EQ(kept_with({}), (KeptSlots{{0, 20, 21, 22, 23, 24, 25, 26, 27, 39}}));
  EXPECT_EQ(kept_with({{5, 15, 3}}), (KeptSlots{{0, 5, 6, 7, 20, 21, 22, 23, 24, 39}}));
  EXPECT_EQ(kept_with({{0, 15, 3}}), (KeptSlots{{0, 1, 2, 20, 21, 22, 23, 24, 25, 39}}));
  EXPECT_EQ(kept_with({{30, 40, 1}}), (KeptSlots{{0, 20, 21, 22, 23, 24, 25, 26, 27, 39}}));
}

// Protected rows have no part in the choice among the others: with and without them, the same others stay.
TEST(Spans, AreTakenOffTheTop) {
  std::vector<float> norms;
  for (int i = 0; i < 40; ++i) {
    norms.push_back(static_cast<float>((i * 7) % 40));
  }
  const TinyLayer layer({TinyHead::with_norms(norms)});
  Policy policy = Policy::parse("knorm:budget=10,n_sink=1,n_recent=1");
  BudgetContext context;
  context.spans = {{10, 12}, {38, 40}};  // 39 is the recent row too
  policy.resolve(context);
  // 8 of the budget are 0, 10, 11, 38 and 39 and the lowest norms, at 23 (1), 6 (2), 29 (3), 12 (4), 35 (5).
  EXPECT_EQ(layer.kept_by(policy), (KeptSlots{{0, 6, 10, 11, 12, 23, 29, 35, 38, 39}}));
}

TEST(Spans, ThatDoNotFitTheBudgetAreRefusedWithAllNumbers) {
  Policy policy = Policy::parse("knorm:budget=20,n_sink=4,n_recent=2");
  BudgetContext context;
  context.spans = {{2, 16}, {20, 24}};  // 12 + 4 beside the sinks
  try {
    policy.resolve(context);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what())
                  .find("n_sink 4, 16 protected rows of the prompt and n_recent 2 leave nothing to "
                        "choose in a budget of 20 rows (at least 23 are needed"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace winnow::policy
