// +roles: integer quotas of each role by largest remainder, the best rows within a role, bans.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"
#include "roles/role.h"

namespace winnow::policy {
namespace {

using roles::Role;

// One letter for each position: Key Value Delim Header Prose, and _ for white space.
std::vector<Role> roles_of(std::string_view letters) {
  const std::map<char, Role> by_letter{{'K', Role::kKey},   {'V', Role::kValue},
                                       {'D', Role::kDelim}, {'H', Role::kHeader},
                                       {'P', Role::kProse}, {'_', Role::kSpace}};
  std::vector<Role> roles;
  for (const char letter : letters) {
    roles.push_back(by_letter.at(letter));
  }
  return roles;
}

// What a head with these squared key norms keeps, the smallest first.
KeptSlots kept(const std::string& spec, const std::vector<std::vector<float>>& norms,
               std::string_view letters) {
  std::vector<TinyHead> heads;
  for (const std::vector<float>& head : norms) {
    heads.push_back(TinyHead::with_norms(head));
  }
  Policy policy = Policy::parse(spec);
  policy.resolve({.n_document = static_cast<int64_t>(letters.size()), .roles = roles_of(letters)});
  return TinyLayer(heads).kept_by(policy);
}

std::vector<float> ascending(size_t n) {
  std::vector<float> norms(n);
  std::iota(norms.begin(), norms.end(), 1.0F);
  return norms;
}

constexpr const char* kBare = ",n_sink=0,n_recent=0";

TEST(Roles, ARoleGetsItsShareAndItsBestRows) {
  // .7 of 4 is 2.8, .2 is .8, .05 twice is .2 each: 2 + 0, then VALUE and DELIM by remainder, of equals VALUE first.
  EXPECT_EQ(kept(std::string("knorm+roles:budget=4") + kBare, {ascending(12)}, "KKKVVVVDDD__"),
            (KeptSlots{{3, 4, 5, 7}}));
}

TEST(Roles, WhatARoleCannotTakeGoesToTheOthers) {
  // VALUE has one row; its other 3 of 4 are divided between DELIM (.2) and PROSE (.05): 2.4 and 0.6.
  EXPECT_EQ(kept(std::string("knorm+roles:budget=5") + kBare, {ascending(10)}, "KKVDDDDPPP"),
            (KeptSlots{{2, 3, 4, 5, 7}}));
}

TEST(Roles, RolesWithoutAWeightFillTheBudget) {
  EXPECT_EQ(kept(std::string("knorm+roles:budget=4") + kBare, {ascending(6)}, "KKKKVV"),
            (KeptSlots{{0, 1, 4, 5}}));
}

TEST(Roles, KeysGetWhatTheyAreGivenFromValues) {
  // .1 of 10 for KEY and .6 for VALUE.
  EXPECT_EQ(kept(std::string("knorm+roles:budget=10,key=0.1") + kBare, {ascending(40)},
                 "KKKKKKKKKKVVVVVVVVVVDDDDDDDDDDPPPPP_____"),
            (KeptSlots{{0, 10, 11, 12, 13, 14, 15, 20, 21, 30}}));
}

TEST(Roles, FairKeepsTheSameShareOfEach) {
  EXPECT_EQ(
      kept(std::string("knorm+roles:budget=6,roles=fair") + kBare, {ascending(12)}, "KKKKKKVVVVDD"),
      (KeptSlots{{0, 1, 2, 6, 7, 10}}));
}

TEST(Roles, NoneIsThePlainOrder) {
  EXPECT_EQ(
      kept(std::string("knorm+roles:budget=3,roles=none") + kBare, {{5, 1, 2, 9, 3}}, "KKVVD"),
      (KeptSlots{{1, 2, 4}}));
}

TEST(Roles, BannedRowsNeverStay) {
  const std::string ban = std::string(",roles=none,ban=key+ws") + kBare;
  EXPECT_EQ(kept("knorm+roles:budget=3" + ban, {{1, 2, 9, 3, 8}}, "KKV_D"), (KeptSlots{{2, 4}}));
  EXPECT_EQ(kept("knorm+roles:budget=9" + ban, {{1, 2, 9, 3, 8}}, "KKV_D"), (KeptSlots{{2, 4}}))
      << "a budget with room for all";
  EXPECT_EQ(kept("h2o+roles:budget=4,legacy_ban=true" + ban, {{1, 2, 9, 3, 8}}, "KKV_D"),
            (KeptSlots{{0, 1, 2, 4}}))
      << "of rows with score 0 the first stay";
}

TEST(Roles, ProtectedRowsStandOutsideTheDivision) {
  EXPECT_EQ(kept("knorm+roles:budget=5,n_sink=1,n_recent=1,ban=key", {ascending(8)}, "KKVVVDDK"),
            (KeptSlots{{0, 2, 3, 5, 7}}));
}

TEST(Roles, AreKnownByPositionNotBySlot) {
  TinyHead head = TinyHead::with_norms({1, 2, 3, 4});
  head.positions = {1, 3, 5, 7};
  Policy policy = Policy::parse(std::string("knorm+roles:budget=2,roles=value-only") + kBare);
  policy.resolve({.n_document = 6, .roles = roles_of("VKVKVV")});  // 7 is behind them: PROSE
  EXPECT_EQ(TinyLayer({head}).kept_by(policy), (KeptSlots{{0, 2}}));
}

TEST(Roles, StandBehindOtherAllocators) {
  const KeptSlots slots =
      kept(std::string("knorm+adakv+roles:budget=3,budget_floor=0,roles=value-only") + kBare,
           {{1, 2, 3, 4, 5, 60}, {10, 20, 30, 40, 50, 6}}, "KKKVVV");
  EXPECT_EQ(slots, (KeptSlots{{0, 1, 3, 4, 5}, {5}}));
}

TEST(Roles, RefuseWhatCannotBeMeant) {
  EXPECT_THROW(Policy::parse("knorm+roles:budget=40,ban=keys"), Error);
  EXPECT_THROW(Policy::parse("knorm+roles:budget=40,ban=key+"), Error);
  EXPECT_THROW(Policy::parse("knorm+roles:budget=40,ban=key++ws"), Error);
  EXPECT_THROW(Policy::parse("knorm+roles:budget=40,key=-0.5"), Error) << "neither a weight nor -1";
  EXPECT_NO_THROW(Policy::parse("knorm+roles:budget=40,key=-1,value=0,ban=key+ws"));
  EXPECT_THROW(Policy::parse("knorm+roles:budget=40,roles=fairest"), Error);
  EXPECT_THROW(Policy::parse("knorm+roles:budget=40,roles=fair,key=0.1"), Error);
  EXPECT_THROW(Policy::parse("knorm+roles+roles:budget=40"), Error);
  EXPECT_THROW(Policy::parse("knorm+chunkkv+roles:budget=40"), Error);
  Policy policy = Policy::parse("knorm+roles:budget=4,n_recent=1,n_sink=1");
  EXPECT_THROW(policy.resolve({.n_document = 9}), Error) << "nothing says what the tokens are";
  EXPECT_TRUE(policy.needs().roles);
}

// Eqs. (1) and (2) once more, in whole numbers: weights in twentieths.
std::array<int, roles::kRoles> oracle(int n, std::array<int, roles::kRoles> weights,
                                      const std::array<int, roles::kRoles>& n_there) {
  std::array<int, roles::kRoles> quotas{};
  for (size_t r = 0; r < weights.size(); ++r) {
    weights[r] = n_there[r] > 0 ? weights[r] : 0;
  }
  while (n > 0 && std::accumulate(weights.begin(), weights.end(), 0) > 0) {
    const int sum = std::accumulate(weights.begin(), weights.end(), 0);
    std::vector<std::array<int, 3>> order;  // remainder, weight, role
    std::array<int, roles::kRoles> shares{};
    int n_left = n;
    for (size_t r = 0; r < weights.size(); ++r) {
      shares[r] = weights[r] * n / sum;
      n_left -= shares[r];
      if (weights[r] > 0) {
        order.push_back({weights[r] * n % sum, weights[r], static_cast<int>(r)});
      }
    }
    std::ranges::sort(order, std::greater());
    for (int i = 0; i < n_left; ++i) {
      ++shares[static_cast<size_t>(order[static_cast<size_t>(i)][2])];
    }
    for (size_t r = 0; r < weights.size(); ++r) {
      const int n_taken = std::min(shares[r], n_there[r] - quotas[r]);
      quotas[r] += n_taken;
      n -= n_taken;
      weights[r] = quotas[r] < n_there[r] ? weights[r] : 0;
    }
  }
  return quotas;
}

TEST(Roles, DivideAsWholeNumbersDo) {
  std::mt19937 random(1);
  const auto draw = [&random](int most) {
    return std::uniform_int_distribution<int>(0, most)(random);
  };
  constexpr std::string_view kLetters = "_PDVHK";
  for (int round = 0; round < 500; ++round) {
    const int n = 2 + draw(60);
    const int budget = 1 + draw(n - 2);
    std::string letters;
    std::vector<float> norms;
    std::array<int, roles::kRoles> n_there{};
    const int n_kinds = 1 + draw(5);
    for (int i = 0; i < n; ++i) {
      const int role = draw(n_kinds) % roles::kRoles;
      letters += kLetters[static_cast<size_t>(role)];
      ++n_there[static_cast<size_t>(role)];
      norms.push_back(static_cast<float>(draw(20)));  // with ties
    }
    // Powers of two, so that shares in floating point have no error.
    constexpr int kWeights[] = {0, 1, 2, 4, 8};
    std::array<int, roles::kRoles> weights{};
    std::string spec = "knorm+roles:budget=" + std::to_string(budget) + kBare;
    constexpr const char* kNames[] = {"ws", "prose", "delim", "value", "header", "key"};
    for (size_t r = 0; r < weights.size(); ++r) {
      weights[r] = kWeights[draw(4)];
      spec += std::string(",") + kNames[r] + "=" + std::to_string(weights[r]);
    }
    const int sum = std::accumulate(weights.begin(), weights.end(), 0);
    if ((sum & (sum - 1)) != 0) {
      continue;  // shares would be rounded
    }
    const KeptSlots slots = kept(spec, {norms}, letters);
    ASSERT_EQ(std::ssize(slots[0]), budget) << spec << " on " << letters;
    std::array<int, roles::kRoles> n_kept{};
    for (const int slot : slots[0]) {
      ++n_kept[kLetters.find(letters[static_cast<size_t>(slot)])];
    }
    const std::array<int, roles::kRoles> quotas = oracle(budget, weights, n_there);
    for (size_t r = 0; r < weights.size(); ++r) {
      ASSERT_GE(n_kept[r], quotas[r]) << spec << " on " << letters << ", role " << kNames[r];
      ASSERT_TRUE(weights[r] == 0 || n_kept[r] == quotas[r])
          << spec << " on " << letters << ", role " << kNames[r];
    }
    // Within a role no row that went is better than one that stayed, where all weights are above 0.
    for (int a = 0; a < n; ++a) {
      const bool is_kept = std::ranges::binary_search(slots[0], a);
      for (int b = 0; is_kept && b < n; ++b) {
        const auto i = static_cast<size_t>(a);
        const auto j = static_cast<size_t>(b);
        if (letters[i] == letters[j] && !std::ranges::binary_search(slots[0], b)) {
          ASSERT_TRUE(norms[i] < norms[j] || (norms[i] == norms[j] && a < b))
              << spec << " on " << letters;
        }
      }
    }
  }
}

// Questions and templates stand outside the division unless the spec says otherwise, also once it has been echoed.
TEST(Roles, ProtectQuestionsAndTemplates) {
  const auto parts_of = [](const char* spec) {
    const Policy policy = Policy::parse(spec);
    EXPECT_EQ(Policy::parse(policy.spec()).options().protect.size(),
              policy.options().protect.size());
    return policy.options().protect.size();
  };
  EXPECT_EQ(parts_of("snapkv+roles:budget=10%"), 2U);
  EXPECT_EQ(parts_of("snapkv+roles:budget=10%,protect=question"), 1U);
  EXPECT_EQ(parts_of("snapkv+roles:budget=10%,protect=none"), 0U);
}

}  // namespace
}  // namespace winnow::policy
