#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "policy/golden_fixture.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;

TEST(Chunkwise, KeepsWhatKvpressKeeps) {
  EXPECT_EQ(golden::kept_by("knorm+chunkwise:budget=12,n_sink=0,n_recent=0,chunkwise=8"),
            (KeptSlots{{0, 2, 3, 7, 10, 12, 13, 14, 17, 19, 20, 21},
                       {0, 2, 5, 6, 8, 10, 12, 15, 16, 18, 19, 22}}));
}

TEST(Chunkwise, ByHand) {
  // Chunks of 4 rows: the lowest norms are all in the first.
  const TinyLayer layer({TinyHead::with_norms({1, 2, 3, 4, 9, 8, 7, 6, 5, 9})});
  const auto kept = [&](const std::string& options) {
    return layer.kept_by(Policy::parse("knorm+chunkwise:chunkwise=4," + options)).at(0);
  };
  // 10 rows, 5 stay: 2 of the first 4, 2 of the first 8 more, 1 of the rest.
  EXPECT_EQ(kept("n_sink=0,n_recent=0,budget=5"), (Slots{0, 1, 6, 7, 8}));
  // Of the 7 between a sink and two last rows 2 stay: 3 · 2 / 7 = 0 of the first chunk, 7 · 2 / 7 = 2 up to the second's end.
  EXPECT_EQ(kept("n_sink=1,n_recent=2,budget=5"), (Slots{0, 6, 7, 8, 9}));
  EXPECT_EQ(kept("n_sink=0,n_recent=0,budget=1"), (Slots{8}));
}

// Every chunk keeps its share to a row, and its best rows.
TEST(Chunkwise, EveryChunkKeepsItsShareOfItsBestRows) {
  std::mt19937 random(5);
  for (const int n : {30, 200, 301}) {
    for (const int budget : {7, 20, 29}) {
      for (const int chunk : {1, 16, 50, 1000}) {
        std::vector<float> norms(static_cast<size_t>(n));
        for (float& norm : norms) {
          norm = static_cast<float>(std::uniform_int_distribution<int>(0, 9)(random));
        }
        const Slots kept =
            TinyLayer({TinyHead::with_norms(norms)})
                .kept_by(Policy::parse(
                    "knorm+chunkwise:n_sink=0,n_recent=0,budget=" + std::to_string(budget) +
                    ",chunkwise=" + std::to_string(chunk)))
                .at(0);
        ASSERT_EQ(std::ssize(kept), budget);
        for (int begin = 0; begin < n; begin += chunk) {
          const int end = std::min(n, begin + chunk);
          const auto is_inside = [&](int slot) { return slot >= begin && slot < end; };
          const double n_kept = static_cast<double>(std::ranges::count_if(kept, is_inside));
          ASSERT_NEAR(n_kept, static_cast<double>(budget) * (end - begin) / n, 1.0);
          float worst_kept = -1;
          float best_lost = 1000;
          for (int slot = begin; slot < end; ++slot) {
            const float norm = norms[static_cast<size_t>(slot)];
            if (std::ranges::binary_search(kept, slot)) {
              worst_kept = std::max(worst_kept, norm);
            } else {
              best_lost = std::min(best_lost, norm);
            }
          }
          ASSERT_LE(worst_kept, best_lost);
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::policy
