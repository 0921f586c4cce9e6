#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

TEST(Blockwise, KeepsWhatKvpressKeeps) {
  EXPECT_EQ(golden::kept_by("keydiff+blockwise:budget=12,n_sink=0,n_recent=0,block=4"),
            (KeptSlots{{1, 2, 3, 4, 7, 11, 12, 13, 15, 16, 22, 23},
                       {0, 2, 3, 5, 9, 10, 13, 19, 20, 21, 22, 23}}));
}

// Rows whose scores do not depend on others are the same, however they come.
TEST(Blockwise, OfScoresThatDependOnNoOtherRowTheBestStay) {
  std::vector<TinyHead> heads;
  for (unsigned i = 0; i < 3; ++i) {
    heads.push_back(TinyHead::random(200 + static_cast<int>(i), i));
  }
  const TinyLayer layer(heads);
  for (const std::string method : {"knorm", "random"}) {
    for (const int block : {1, 7, 64, 500}) {
      const std::string options = ":budget=30,n_sink=2,n_recent=5";
      EXPECT_EQ(layer.kept_by(Policy::parse(method + "+blockwise" + options +
                                            ",block=" + std::to_string(block))),
                layer.kept_by(Policy::parse(method + options)))
          << method << ", " << block;
    }
  }
}

// Eq. (1) and (2), on heads that hold nothing but the rows in question.
Slots taken_block_by_block(const TinyHead& head, const std::string& method, int budget, int n_first,
                           int n_last, int block) {
  const auto dim = static_cast<std::ptrdiff_t>(head.head_dim);
  const auto n = static_cast<int>(head.positions.size());
  Slots kept(static_cast<size_t>(budget));
  std::iota(kept.begin(), kept.end(), 0);
  for (int next = budget; next < n;) {
    for (const int end = std::min(n, next + block); next < end; ++next) {
      kept.push_back(next);
    }
    TinyHead there{.positions = {}, .norms = {}, .hidden = {}, .head_dim = head.head_dim};
    for (const int row : kept) {
      there.positions.push_back(head.positions[static_cast<size_t>(row)]);
      there.norms.push_back(head.norms[static_cast<size_t>(row)]);
      const auto first = row * dim;
      there.keys.insert(there.keys.end(), head.keys.begin() + first,
                        head.keys.begin() + first + dim);
      there.values.insert(there.values.end(), head.values.begin() + first,
                          head.values.begin() + first + dim);
    }
    const Policy policy =
        Policy::parse(method + ":budget=" + std::to_string(budget) +
                      ",n_sink=" + std::to_string(n_first) + ",n_recent=" + std::to_string(n_last));
    Slots stay;
    const KeptSlots kept_there = TinyLayer({there}).kept_by(policy);
    for (const int slot : kept_there.at(0)) {
      stay.push_back(kept[static_cast<size_t>(slot)]);
    }
    kept = stay;
  }
  return kept;
}

TEST(Blockwise, ChoosesAsIfRowsHadComeInBlocks) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    const TinyHead head = TinyHead::random(150 + static_cast<int>(seed), seed);
    for (const std::string method : {"keydiff", "cur"}) {
      for (const int block : {1, 10, 64, 500}) {
        const Policy policy = Policy::parse(
            method + "+blockwise:budget=40,n_sink=3,n_recent=6,block=" + std::to_string(block));
        EXPECT_EQ(TinyLayer({head}).kept_by(policy).at(0),
                  taken_block_by_block(head, method, 40, 3, 6, block))
            << method << ", " << block;
      }
    }
  }
}

TEST(Blockwise, RowsThatAreHiddenStaySo) {
  TinyHead head = TinyHead::random(120, 8);
  head.hidden.assign(120, cache::kVisible);
  for (const size_t row : {3U, 4U, 50U, 51U, 90U}) {
    head.hidden[row] = cache::kHidden;
  }
  const Policy policy = Policy::parse("keydiff+blockwise:budget=30,n_sink=2,n_recent=4,block=9");
  const Slots kept = TinyLayer({head}).kept_by(policy).at(0);
  Slots expected = TinyLayer({head.compacted()}).kept_by(policy).at(0);
  Slots visible(120);
  cache::visible_slots(TinyLayer({head}).view().heads[0], visible);
  for (int& slot : expected) {
    slot = visible[static_cast<size_t>(slot)];
  }
  EXPECT_EQ(kept, expected);
}

TEST(Blockwise, WhatItCannotScoreAgainIsRefused) {
  EXPECT_THROW(Policy::parse("keydiff+blockwise:budget=30,positions=contiguous"), Error);
  EXPECT_THROW(Policy::parse("knorm+rank+blockwise:budget=30"), Error);
  EXPECT_THROW(Policy::parse("tova+blockwise:budget=30,per_layer=true"), Error);
  EXPECT_NO_THROW(Policy::parse("tova+blockwise:budget=30"));
}

}  // namespace
}  // namespace winnow::policy
