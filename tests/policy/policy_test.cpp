#include "policy/policy.h"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/schedule.h"
#include "policy/tiny_layer.h"

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

Policy policy_of(const Method& method, const std::string& options) {
  return Policy::parse(std::string(method.name) + ":" + options);
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
  for (int n : {40, 64, 99}) {
    std::vector<float> norms;
    for (int slot = 0; slot < n; ++slot) {
      norms.push_back(static_cast<float>((slot * 37) % 11));
    }
    heads.push_back(TinyHead::with_norms(norms));
  }
  const TinyLayer layer(heads);
  for (const Method* method : evicting_methods()) {
    const KeptSlots kept = layer.kept_by(policy_of(*method, "budget=32,n_sink=4,n_recent=7"));
    ASSERT_EQ(kept.size(), 3U);
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

TEST(Policy, InputsThatAreNotNeededChangeNothing) {
  const std::vector<float> numbers{5, 1, 4, 2, 3, 6, 0, 7};
  const std::vector<float> nans(numbers.size(), std::numeric_limits<float>::quiet_NaN());
  TinyHead without_norms = TinyHead::with_norms(numbers);
  without_norms.norms.clear();
  for (const Method* method : evicting_methods()) {
    const Policy policy = policy_of(*method, "budget=4,n_sink=1,n_recent=1");
    const KeptSlots expected = TinyLayer({TinyHead::with_norms(numbers)}).kept_by(policy);
    if (!policy.needs().key_norms) {
      EXPECT_EQ(TinyLayer({TinyHead::with_norms(nans)}).kept_by(policy), expected);
      EXPECT_EQ(TinyLayer({without_norms}).kept_by(policy), expected);
    }
  }
}

TEST(Policy, PermutingHeadsPermutesTheChoice) {
  const std::vector<TinyHead> heads{TinyHead::with_norms({5, 1, 4, 2, 3, 6, 0, 7}),
                                    TinyHead::with_norms({0, 1, 2, 3, 4, 5, 6, 7, 8}),
                                    TinyHead::with_norms({7, 6, 5, 4, 3, 2, 1})};
  for (const Method* method : evicting_methods()) {
    if (method->signal == "none") {
      continue;  // draws by the head's index
    }
    const Policy policy = policy_of(*method, "budget=4,n_sink=1,n_recent=1");
    const KeptSlots kept = TinyLayer(heads).kept_by(policy);
    EXPECT_EQ(TinyLayer({heads[2], heads[0], heads[1]}).kept_by(policy),
              (KeptSlots{kept[2], kept[0], kept[1]}))
        << method->name;
  }
}

TEST(Policy, ThreadsDoNotChangeTheChoice) {
  std::vector<TinyHead> heads;
  for (int head = 0; head < 9; ++head) {
    std::vector<float> norms;
    for (int slot = 0; slot < 500 + head; ++slot) {
      norms.push_back(static_cast<float>((slot * (head + 3)) % 17));
    }
    heads.push_back(TinyHead::with_norms(norms));
  }
  const TinyLayer layer(heads, 3);
  for (const Method* method : evicting_methods()) {
    const Policy policy = policy_of(*method, "budget=100");
    EXPECT_EQ(layer.kept_by(policy, 1), layer.kept_by(policy, 2)) << method->name;
  }
}

TEST(Policy, LayersTogetherKeepWhatTheyKeepAlone) {
  const TinyLayer first(
      {TinyHead::with_norms({5, 1, 4, 2, 3, 6, 0, 7}), TinyHead::with_norms({1, 2})}, 0);
  const TinyLayer second(
      {TinyHead::with_norms({7, 6, 5, 4, 3, 2, 1}), TinyHead::with_norms({0, 0, 0, 0, 0})}, 1);
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

}  // namespace
}  // namespace winnow::policy
