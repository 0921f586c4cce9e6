#include "policy/policy.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/schedule.h"
#include "policy/tiny_layer.h"
#include "support/filters.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

std::vector<const Method*> evicting_methods() {
  std::vector<const Method*> methods;
  for (const Method& method : kMethods) {
    if (method.make != nullptr) {
      methods.push_back(&method);
    }
  }
  return methods;
}

// Of all layers that these tests have.
FilterShape filter_shape() {
  return {.n_layers = 4, .n_heads = 9, .n_kv_heads = 9, .head_dim = 8};
}

// With the same budget for all heads.
Policy policy_of(const Method& method, const std::string& options) {
  return Policy::parse(std::string(method.name) + "+uniform:" + options +
                       test::own_options(method, filter_shape()));
}

TEST(Policy, ABudgetThatCoversTheRowsLeavesEverything) {
  const TinyLayer layer({TinyHead::with_norms({3, 1, 2}), TinyHead::with_norms({1, 2})});
  for (const Method* method : evicting_methods()) {
    EXPECT_EQ(layer.kept_by(policy_of(*method, "budget=3,n_sink=0")), KeptSlots{});
  }
  EXPECT_EQ(layer.kept_by(Policy::parse("full")), KeptSlots{});
}

TEST(Policy, HeadsThatHaveRoomKeepAllTheirRows) {
  const TinyLayer layer({TinyHead::with_norms({3, 1, 2, 4}), TinyHead::with_norms({1, 2})});
  EXPECT_EQ(layer.kept_by(Policy::parse("knorm:budget=3,n_sink=0,n_recent=0")),
            (KeptSlots{{0, 1, 2}, {0, 1}}));
}

TEST(Policy, EveryHeadKeepsExactlyItsBudgetWithSinksAndRecentRows) {
  std::vector<TinyHead> heads;
  for (const int n : {40, 64, 99, 300}) {
    heads.push_back(TinyHead::random(n, static_cast<unsigned>(n)));
  }
  const TinyLayer layer(heads);
  for (const Method* method : evicting_methods()) {
    const KeptSlots kept = layer.kept_by(policy_of(*method, "budget=32,n_sink=4,n_recent=7"));
    ASSERT_EQ(kept.size(), 4U);
    for (size_t head = 0; head < kept.size(); ++head) {
      const Slots& slots = kept[head];
      const int n = static_cast<int>(heads[head].positions.size());
      ASSERT_EQ(slots.size(), 32U) << method->name;
      EXPECT_TRUE(std::is_sorted(slots.begin(), slots.end()));
      EXPECT_EQ(std::adjacent_find(slots.begin(), slots.end()), slots.end());
      EXPECT_EQ(Slots(slots.begin(), slots.begin() + 4), (Slots{0, 1, 2, 3}));
      EXPECT_EQ(slots[25], n - 7);
      EXPECT_EQ(slots[31], n - 1);
    }
  }
}

TEST(Policy, SinksAreTruePositionsWhateverTheSlot) {
  TinyHead head = TinyHead::with_norms({9, 8, 1, 2, 3});
  head.positions = {1, 6, 7, 8, 9};  // position 0 is gone, position 1 is a sink
  EXPECT_EQ(TinyLayer({head}).kept_by(Policy::parse("knorm:budget=3,n_sink=2,n_recent=0")),
            (KeptSlots{{0, 2, 3}}));
}

TEST(Policy, HiddenRowsCountAsEvicted) {
  TinyHead head = TinyHead::with_norms({5, 1, 4, 2, 3, 6});
  head.hidden = {0, 1, 0, 0, 1, 0};
  EXPECT_EQ(TinyLayer({head}).kept_by(Policy::parse("knorm:budget=3,n_sink=0,n_recent=0")),
            (KeptSlots{{0, 2, 3}}));
  EXPECT_EQ(TinyLayer({head}).kept_by(Policy::parse("knorm:budget=4,n_sink=0,n_recent=0")),
            KeptSlots{});
}

TEST(Policy, CountsNanScoresWhereRowsCompete) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const TinyLayer layer({TinyHead::with_norms({kNan, 1, kNan, 2, kNan, 3}),
                         TinyHead::with_norms({1, 2, kNan, 3, 4, 5})});
  kernels::ParallelFor parallel(1);
  Choice choice;
  const LayerView view = layer.view();
  ASSERT_TRUE(Policy::parse("knorm:budget=4,n_sink=1,n_recent=1")
                  .choose(std::span(&view, 1), parallel, choice));
  EXPECT_EQ(choice.kept, (KeptSlots{{0, 1, 3, 5}, {0, 1, 3, 5}}));
  EXPECT_EQ(choice.n_nan_scores(), 3);  // a sink's does not compete
}

// A head of which `share` in 16 rows are hidden, or as often evicted, but never the newest.
TinyHead with_hidden_rows(int n, int share, unsigned seed) {
  TinyHead head = TinyHead::random(n, seed);
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> draw(0, 15);
  for (int slot = 0; slot < n; ++slot) {
    const uint8_t invisible = draw(random) < 8 ? cache::kHidden : cache::kEvicted;
    head.hidden.push_back(draw(random) < share ? invisible : uint8_t{cache::kVisible});
  }
  head.hidden.back() = cache::kVisible;
  return head;
}

TEST(Policy, HiddenRowsCountAsEvictedForEveryMethod) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const Method* method : evicting_methods()) {
    const std::vector<GivenOption> options = test::given_options(*method, filter_shape());
    for (unsigned seed = 0; seed < 20; ++seed) {
      TinyHead head = with_hidden_rows(100 + static_cast<int>(seed) * 30, 5, seed);
      const TinyHead compacted = head.compacted();
      for (size_t slot = 0; slot < head.hidden.size(); ++slot) {
        if (head.hidden[slot] != cache::kVisible) {  // nothing of them is looked at
          head.norms[slot] = kNan;
          const auto dim = static_cast<size_t>(head.head_dim);
          std::fill_n(&head.keys[slot * dim], dim, kNan);
          std::fill_n(&head.values[slot * dim], dim, kNan);
        }
      }
      const TinyLayer masked_layer({head});
      const TinyLayer compacted_layer({compacted});
      std::vector<float> scores = masked_layer.scores_by(method->make, options, 4, 0);
      Slots all(scores.size());
      const std::span<const int> visible = cache::visible_slots(masked_layer.view().heads[0], all);
      for (size_t i = 0; i < visible.size(); ++i) {
        scores[i] = scores[static_cast<size_t>(visible[i])];
      }
      scores.resize(visible.size());
      ASSERT_EQ(scores, compacted_layer.scores_by(method->make, options, 4, 0)) << method->name;

      const Policy policy = policy_of(*method, "budget=40");
      Slots expected = compacted_layer.kept_by(policy).at(0);
      for (int& slot : expected) {
        slot = visible[static_cast<size_t>(slot)];
      }
      ASSERT_EQ(masked_layer.kept_by(policy).at(0), expected) << method->name;
    }
  }
}

TEST(Policy, InputsThatAreNotNeededChangeNothing) {
  const TinyHead numbers = TinyHead::random(300, 1);
  for (const Method* method : evicting_methods()) {
    const Policy policy = policy_of(*method, "budget=40,n_sink=1,n_recent=1");
    TinyHead others = numbers;  // without what the method does not need
    // Here norms stand for any score that is stored; there are no projections.
    if (!policy.needs().key_norms && !policy.needs().replay.is_wanted() &&
        !policy.needs().chunk_attention.is_wanted()) {
      others.norms.clear();
    }
    if (!policy.needs().keys && !policy.needs().key_projections) {  // none are stored here
      others.keys.clear();
    }
    if (!policy.needs().values) {
      others.values.clear();
    }
    EXPECT_EQ(TinyLayer({others}).kept_by(policy), TinyLayer({numbers}).kept_by(policy))
        << method->name;
  }
}

TEST(Policy, PermutingHeadsPermutesTheChoice) {
  const std::vector<TinyHead> heads{TinyHead::random(300, 1), TinyHead::random(400, 2),
                                    with_hidden_rows(500, 3, 3)};
  for (const Method* method : evicting_methods()) {
    if (method->kind == "none") {
      continue;  // draws by the head's index
    }
    const Policy policy = policy_of(*method, "budget=40,n_sink=1,n_recent=1");
    const KeptSlots kept = TinyLayer(heads).kept_by(policy);
    EXPECT_EQ(TinyLayer({heads[2], heads[0], heads[1]}).kept_by(policy),
              (KeptSlots{kept[2], kept[0], kept[1]}))
        << method->name;
  }
}

TEST(Policy, ThreadsDoNotChangeTheChoice) {
  std::vector<TinyHead> heads;
  for (int head = 0; head < 9; ++head) {
    heads.push_back(TinyHead::random(500 + head, static_cast<unsigned>(head)));
  }
  const TinyLayer layer(heads, 3);
  for (const Method* method : evicting_methods()) {
    const Policy policy = policy_of(*method, "budget=100");
    EXPECT_EQ(layer.kept_by(policy, 1), layer.kept_by(policy, 2)) << method->name;
  }
}

TEST(Policy, LayersTogetherKeepWhatTheyKeepAlone) {
  const TinyLayer first({TinyHead::random(300, 1), TinyHead::random(2, 2)}, 0);
  const auto zeros = TinyHead::with_rows(8, std::vector<float>(40), std::vector<float>(40));
  const TinyLayer second({TinyHead::random(290, 3), zeros}, 1);
  const LayerView layers[] = {first.view(), second.view()};
  kernels::ParallelFor parallel(2);
  for (const Method* method : evicting_methods()) {
    const Policy policy = policy_of(*method, "budget=4,n_sink=1,n_recent=1");
    KeptSlots expected = first.kept_by(policy);
    const KeptSlots of_second = second.kept_by(policy);
    expected.insert(expected.end(), of_second.begin(), of_second.end());
    Choice choice;
    EXPECT_TRUE(policy.choose(layers, parallel, choice));
    EXPECT_EQ(choice.kept, expected) << method->name;
  }
}

TEST(Schedule, IsDueWhenBudgetAndSlackAreUsedUp) {
  const Policy policy = Policy::parse("knorm:budget=16,slack=8");
  EXPECT_FALSE(is_due(policy, 16));
  EXPECT_FALSE(is_due(policy, 24));
  EXPECT_TRUE(is_due(policy, 25));
  EXPECT_TRUE(is_due(Policy::parse("knorm:budget=16"), 17));
  EXPECT_FALSE(is_due(Policy::parse("full"), std::numeric_limits<int>::max()));
}

TEST(Schedule, SlackIsTheMethodsUnlessItIsGiven) {
  EXPECT_EQ(Policy::parse("snapkv:budget=512").slack(), 64);
  EXPECT_EQ(Policy::parse("snapkv:budget=40,n_recent=0").slack(), 5);
  EXPECT_EQ(Policy::parse("snapkv:budget=512,slack=0").slack(), 0);
  EXPECT_EQ(Policy::parse("snapkv:budget=512,slack=7").slack(), 7);
  EXPECT_EQ(Policy::parse("knorm:budget=512").slack(), 0);
  EXPECT_EQ(Policy::parse("tova:budget=512").slack(), 16);
  EXPECT_EQ(Policy::parse("tova:budget=512").most_held_rows(2, 3), 528);
}

// What is bounded in bytes is all the rows that there are at any time; what is given comes on top.
TEST(Schedule, ABudgetInBytesHoldsTheMethodsSlack) {
  const auto resolved = [](const std::string& spec) {
    Policy policy = Policy::parse(spec);
    policy.resolve({.n_document = 5000, .row_bytes = 1024, .n_heads = 2});
    return std::pair(policy.budget_rows(), policy.slack());
  };
  EXPECT_EQ(resolved("knorm:budget=1MiB"), std::pair(512, 0));
  EXPECT_EQ(resolved("snapkv:budget=1MiB"), std::pair(448, 64));
  EXPECT_EQ(resolved("snapkv:budget=1MiB,slack=10"), std::pair(512, 10));
  // There is no room between what is protected and the budget.
  EXPECT_EQ(resolved("snapkv:budget=1MiB,n_recent=500"), std::pair(512, 0));
  EXPECT_EQ(resolved("snapkv:budget=10%"), std::pair(500, 62));
}

TEST(Schedule, CountsTheFullestOfThoseWhoShare) {
  const RowsHeld held{
      .n_layers = 3, .n_kv_heads = 2, .longest_head = 40, .largest_layer = 61, .all = 121};
  EXPECT_EQ(rows_per_head(Policy::parse("knorm:budget=16"), held), 40);
  EXPECT_EQ(rows_per_head(Policy::parse("knorm+adakv:budget=16"), held), 31);  // 30.5
  for (const char* spec :
       {"knorm+pyramid:budget=16", "knorm+pyramid+adakv:budget=16", "knorm+pool:budget=16"}) {
    EXPECT_EQ(rows_per_head(Policy::parse(spec), held), 21) << spec;  // 20.2
    EXPECT_EQ(rows_per_head(Policy::parse(spec), {}), 0) << spec;
  }
}

}  // namespace
}  // namespace winnow::policy
