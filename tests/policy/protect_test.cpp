#include "policy/protect.h"

#include <gtest/gtest.h>

#include <vector>

#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

struct Counts {
  int n_first, n_last;
  bool operator==(const Counts&) const = default;
};

Counts counts(const std::vector<int32_t>& positions, const Protection& protection,
              const std::vector<uint8_t>& hidden = {}) {
  const TinyLayer layer({TinyHead{.positions = positions, .norms = {}, .hidden = hidden}});
  const Protected rows = protect(layer.view().heads[0], protection);
  return {rows.n_first, rows.n_last};
}

TEST(Protect, SinksAreTruePositions) {
  EXPECT_EQ(counts({0, 1, 2, 3, 4, 5}, {.n_sink = 4, .n_recent = 0}), (Counts{4, 0}));
  EXPECT_EQ(counts({2, 7, 8, 9}, {.n_sink = 4, .n_recent = 0}), (Counts{1, 0}));
  EXPECT_EQ(counts({10, 11, 12}, {.n_sink = 4, .n_recent = 0}), (Counts{0, 0}));
}

TEST(Protect, RecentRowsAreTheLastOnes) {
  EXPECT_EQ(counts({0, 5, 9, 70}, {.n_sink = 1, .n_recent = 2}), (Counts{1, 2}));
}

TEST(Protect, RangesDoNotOverlapInAShortHead) {
  EXPECT_EQ(counts({0, 1, 2}, {.n_sink = 2, .n_recent = 5}), (Counts{2, 1}));
  EXPECT_EQ(counts({0, 1}, {.n_sink = 4, .n_recent = 5}), (Counts{2, 0}));
  EXPECT_EQ(counts({}, {.n_sink = 4, .n_recent = 5}), (Counts{0, 0}));
}

TEST(Protect, HiddenRowsAreNotCounted) {
  const std::vector<uint8_t> hidden{0, 1, 0, 1, 0, 1, 0};
  EXPECT_EQ(counts({0, 1, 2, 3, 4, 5, 6}, {.n_sink = 2, .n_recent = 2}, hidden), (Counts{1, 2}));
  EXPECT_EQ(counts({0, 1, 2, 3, 4, 5, 6}, {.n_sink = 4, .n_recent = 9}, hidden), (Counts{2, 2}));
}

}  // namespace
}  // namespace winnow::policy
