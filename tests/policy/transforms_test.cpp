// What holds for every transform, and how they stand in a spec.
#include "policy/transforms.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>

#include "policy/allocators.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"
#include "support/error_of.h"

namespace winnow::policy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string refusal(const std::string& spec) {
  return test::error_of(ErrorCode::kInvalidArgument, [&] { Policy::parse(spec); });
}

// Every transform after knorm, whose scores are negative, alone and with allocators.
std::vector<std::string> specs(const std::string& options) {
  std::vector<std::string> all;
  for (const TransformPart& part : kTransforms) {
    const std::string name(part.name);
    if (name == "threshold") {  // fills no budget: threshold_test.cpp
      continue;
    }
    const std::string parts = name == "criticalkv" ? "rank+" + name : name;
    all.push_back("knorm+" + parts + options);
    all.push_back("knorm+" + parts + "+adakv" + options);
    all.push_back("snapkv+" + parts + "+pool" + options);
  }
  all.push_back("knorm+softmax+chunkkv+adakv" + options + ",chunk=7,shared_chunks=true");
  return all;
}

TEST(Transforms, EveryNameIsFoundAndDefaultsAreAllowed) {
  for (const TransformPart& part : kTransforms) {
    EXPECT_EQ(find_transform(part.name), &part);
    EXPECT_NE(part.make_normalizer == nullptr, part.make_second_stage == nullptr);
    EXPECT_FALSE(part.cost.empty());
    std::string options;
    for (const OptionDescription& option : describe_options(part)) {
      EXPECT_FALSE(option.help.empty());
      options += "," + option.name + "=" + option.default_value;
    }
    const std::string parts = "h2o+" + std::string(part.name);
    EXPECT_EQ(Policy::parse(parts + ":budget=9,n_recent=0" + options).spec(),
              parts + ":budget=9,n_recent=0");
  }
  EXPECT_EQ(find_transform("knorm"), nullptr);
}

// A name that two parts of one policy read would mean both.
TEST(Transforms, OptionsAreTheirOwn) {
  std::set<std::string> taken;
  const auto take = [&](const std::vector<OptionDescription>& options) {
    for (const OptionDescription& option : options) {
      taken.insert(option.name);
    }
  };
  take(describe_policy_options());
  for (const Method& method : kMethods) {
    take(describe_options(method));
  }
  for (const AllocatorPart& part : kAllocators) {
    take(describe_options(part));
  }
  for (const TransformPart& part : kTransforms) {
    for (const OptionDescription& option : describe_options(part)) {
      EXPECT_TRUE(taken.insert(option.name).second) << part.name << ": " << option.name;
    }
  }
}

TEST(Transforms, StandAfterAMethodAndBeforeAllocatorsInTheCanonicalSpec) {
  EXPECT_EQ(Policy::parse("snapkv + adakv + rank + chunkkv + pyramid : chunk=8, budget=99").spec(),
            "snapkv+rank+chunkkv+pyramid+adakv:budget=99,chunk=8");
  EXPECT_EQ(Policy::parse("knorm+softmax+rank:budget=99,temperature=1").spec(),
            "knorm+softmax+rank:budget=99");
}

TEST(Transforms, RefusesWhatHasNoMeaning) {
  EXPECT_THAT(refusal("chunkkv:budget=512"),
              AllOf(HasSubstr("'chunkkv' is a transform"), HasSubstr("as in snapkv+chunkkv")));
  EXPECT_THAT(refusal("knorm+chunkvk:budget=512"),
              AllOf(HasSubstr("unknown transform, allocator, merger or reader 'chunkvk'"),
                    HasSubstr("did you mean 'chunkkv'"), HasSubstr("adakv")));
  EXPECT_THAT(refusal("knorm+chunkkv+rank:budget=512"),
              AllOf(HasSubstr("'rank' cannot come after it"), HasSubstr("rank+chunkkv")));
  EXPECT_THAT(refusal("knorm+chunkkv+chunkkv:budget=512"), HasSubstr("which does so too"));
  EXPECT_THAT(refusal("knorm+chunkkv:budget=512,chunk=0"), HasSubstr("chunk"));
  EXPECT_THAT(refusal("knorm+rank:budget=512,chunk=8"), HasSubstr("unknown option 'chunk'"));
  EXPECT_THAT(
      refusal("keydiff+criticalkv:budget=512"),
      AllOf(HasSubstr("those of keydiff may be negative"), HasSubstr("keydiff+rank+criticalkv")));
  EXPECT_THAT(refusal("streaming+criticalkv:budget=512"), HasSubstr("may be negative"));
  EXPECT_THAT(refusal("full+chunkkv"), HasSubstr("nothing for 'chunkkv' to do"));
}

std::vector<float> normalized(const std::string& name, std::vector<float> scores) {
  OptionReader reader;
  Scratch scratch;
  find_transform(name)->make_normalizer(reader)->normalize(scores, scratch);
  return scores;
}

TEST(Transforms, RankByHand) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(normalized("rank", {-3, 7, -9, 7}),
            (std::vector<float>{2.0F / 4, 3.5F / 4, 1.0F / 4, 3.5F / 4}));
  EXPECT_EQ(normalized("rank", {kInfinity, 0.0F, -0.0F, -kInfinity}),
            (std::vector<float>{4.0F / 4, 2.5F / 4, 2.5F / 4, 1.0F / 4}));
  const std::vector<float> with_nan = normalized("rank", {kNan, 5, 6});
  EXPECT_TRUE(std::isnan(with_nan[0]));
  EXPECT_EQ(with_nan[1], 0.5F);
  EXPECT_EQ(with_nan[2], 1.0F);
}

TEST(Transforms, SoftmaxByHand) {
  const std::vector<float> shares = normalized("softmax", {-30, -10});  // ± one deviation
  EXPECT_NEAR(static_cast<double>(shares[1] / shares[0]), std::exp(2.0), 1e-5);
  EXPECT_NEAR(static_cast<double>(shares[0] + shares[1]), 1.0, 1e-6);
  EXPECT_EQ(normalized("softmax", {4, 4, 4, 4}), (std::vector<float>(4, 0.25F)));
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<float> infinite = normalized("softmax", {kInfinity, 1, 2, -kInfinity});
  EXPECT_EQ(infinite[0], kInfinity);
  EXPECT_EQ(infinite[3], -kInfinity);
  EXPECT_NEAR(static_cast<double>(infinite[1] + infinite[2]), 1.0, 1e-6);
}

TEST(Transforms, NormalizersKeepEachHeadsChoice) {
  std::mt19937 random(3);
  const TinyLayer layer({TinyHead::random(200, 1), TinyHead::random(150, 2)});
  for (const std::string method : {"knorm", "keydiff", "h2o", "lagkv"}) {
    const KeptSlots plain = layer.kept_by(Policy::parse(method + ":budget=40"));
    for (const TransformPart& part : kTransforms) {
      if (part.make_normalizer != nullptr) {
        EXPECT_EQ(
            layer.kept_by(Policy::parse(method + "+" + std::string(part.name) + ":budget=40")),
            plain)
            << method << "+" << part.name;
      }
    }
  }
}

// Without them a head of small keys takes all rows of a layer.
TEST(Transforms, NormalizersMakeHeadsComparable) {
  std::vector<float> small(100);
  std::vector<float> large(100);
  for (size_t i = 0; i < small.size(); ++i) {
    small[i] = 1 + static_cast<float>(i) / 100;
    large[i] = 100 * small[i];
  }
  const TinyLayer layer({TinyHead::with_norms(small), TinyHead::with_norms(large)});
  const std::string options = ":budget=40,n_sink=0,n_recent=0,budget_floor=0";
  EXPECT_EQ(layer.kept_by(Policy::parse("knorm+adakv" + options))[1].size(), 1U);
  for (const char* parts : {"knorm+rank+adakv", "knorm+softmax+adakv"}) {
    const KeptSlots kept = layer.kept_by(Policy::parse(parts + options));
    EXPECT_NEAR(static_cast<double>(kept[0].size()), 40.0, 1.0) << parts;
    EXPECT_NEAR(static_cast<double>(kept[1].size()), 40.0, 1.0) << parts;
  }
}

// A head of which some rows are not visible, and hold what must not be looked at.
TinyHead with_hidden_rows(int n, unsigned seed) {
  TinyHead head = TinyHead::random(n, seed);
  std::mt19937 random(seed);
  for (int slot = 0; slot < n; ++slot) {
    const bool is_hidden = slot + 1 < n && std::uniform_int_distribution<int>(0, 3)(random) == 0;
    head.hidden.push_back(is_hidden ? cache::kHidden : cache::kVisible);
    if (is_hidden) {
      const auto dim = static_cast<size_t>(head.head_dim);
      const auto i = static_cast<size_t>(slot);
      head.norms[i] = std::numeric_limits<float>::quiet_NaN();
      std::fill_n(&head.keys[i * dim], dim, head.norms[i]);
      std::fill_n(&head.values[i * dim], dim, head.norms[i]);
    }
  }
  return head;
}

TEST(Transforms, HiddenRowsCountAsEvicted) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    std::vector<TinyHead> masked;
    std::vector<TinyHead> compacted;
    for (unsigned head = 0; head < 3; ++head) {
      masked.push_back(with_hidden_rows(120 + 40 * static_cast<int>(seed), 10 * seed + head));
      compacted.push_back(masked.back().compacted());
    }
    const TinyLayer masked_layer(masked);
    const TinyLayer compacted_layer(compacted);
    for (const std::string& spec : specs(":budget=40")) {
      const Policy policy = Policy::parse(spec);
      KeptSlots expected = compacted_layer.kept_by(policy);
      for (size_t head = 0; head < expected.size(); ++head) {
        std::vector<int> all(masked[head].positions.size());
        const std::span<const int> visible =
            cache::visible_slots(masked_layer.view().heads[head], all);
        for (int& slot : expected[head]) {
          slot = visible[static_cast<size_t>(slot)];
        }
      }
      ASSERT_EQ(masked_layer.kept_by(policy), expected) << spec;
    }
  }
}

TEST(Transforms, KeepExactlyTheBudgetWithSinksAndRecentRows) {
  const TinyLayer layer(
      {TinyHead::random(99, 1), TinyHead::random(64, 2), TinyHead::random(300, 3)});
  for (const std::string& spec : specs(":budget=32,n_sink=4,n_recent=7")) {
    const KeptSlots kept = layer.kept_by(Policy::parse(spec));
    size_t total = 0;
    for (size_t head = 0; head < kept.size(); ++head) {
      const std::vector<int>& slots = kept[head];
      total += slots.size();
      EXPECT_TRUE(std::ranges::is_sorted(slots));
      EXPECT_EQ(std::ranges::adjacent_find(slots), slots.end());
      EXPECT_EQ((std::vector<int>(slots.begin(), slots.begin() + 4)),
                (std::vector<int>{0, 1, 2, 3}));
      EXPECT_EQ(slots.end()[-7] + 6, slots.back()) << spec;
    }
    EXPECT_EQ(total, 96U) << spec;
  }
}

TEST(Transforms, PermutingHeadsPermutesTheChoice) {
  const std::vector<TinyHead> heads{TinyHead::random(300, 1), TinyHead::random(400, 2),
                                    with_hidden_rows(350, 3)};
  for (const std::string& spec : specs(":budget=40,n_sink=1,n_recent=1")) {
    const Policy policy = Policy::parse(spec);
    const KeptSlots kept = TinyLayer(heads).kept_by(policy);
    EXPECT_EQ(TinyLayer({heads[2], heads[0], heads[1]}).kept_by(policy),
              (KeptSlots{kept[2], kept[0], kept[1]}))
        << spec;
  }
}

TEST(Transforms, ThreadsDoNotChangeTheChoice) {
  std::vector<TinyHead> heads;
  for (int head = 0; head < 5; ++head) {
    heads.push_back(TinyHead::random(300 + head, static_cast<unsigned>(head)));
  }
  const TinyLayer layer(heads);
  for (const std::string& spec : specs(":budget=100")) {
    const Policy policy = Policy::parse(spec);
    EXPECT_EQ(layer.kept_by(policy, 1), layer.kept_by(policy, 2)) << spec;
  }
}

}  // namespace
}  // namespace winnow::policy
