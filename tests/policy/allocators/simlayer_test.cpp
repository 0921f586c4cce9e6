#include <gtest/gtest.h>

#include "policy/allocators.h"
#include "policy/golden_fixture.h"

namespace winnow::policy {
namespace {

TEST(Simlayer, MeasuresWhatKvpressMeasures) {
  OptionReader reader(std::vector<GivenOption>{{"lazy_window", "6"}});
  Scratch scratch;
  EXPECT_NEAR(make_simlayer(reader)->measure(golden::Layer().view(2), scratch), 0.331853, 1e-6);
}

TEST(Simlayer, ALayerThatIsAllSinksAndWindowLooksAtLittleElse) {
  OptionReader reader(std::vector<GivenOption>{{"lazy_window", "24"}});
  Scratch scratch;
  const golden::Layer layer;
  const double all = make_simlayer(reader)->measure(layer.view(4), scratch);
  EXPECT_LT(all, 1.0);  // but what the last query pays to itself
  OptionReader fewer(std::vector<GivenOption>{{"lazy_window", "20"}});
  EXPECT_NEAR(make_simlayer(fewer)->measure(layer.view(4), scratch), all, 1e-9);  // 4 + 20 - 1 rows
}

std::vector<double> rows_of(const std::vector<double>& measured, const std::string& window,
                            const LayerAllocator::Budget& budget) {
  OptionReader reader({{"lazy_window", window}, {"lazy_threshold", "0.5"}});
  std::vector<double> rows(4);
  make_simlayer(reader)->allocate(budget, measured, rows);
  return rows;
}

TEST(Simlayer, TheOtherLayersShareWhatLazyOnesLeave) {
  const LayerAllocator::Budget budget{.rows = 100, .n_least = 40, .n_most = 500};
  EXPECT_EQ(rows_of({0.9, 0.1, 0.5, 0.6}, "60", budget), (std::vector<double>{60, 140, 140, 60}));
  EXPECT_EQ(rows_of({0.9, 0.1, 0.1, 0.1}, "40", budget), (std::vector<double>{40, 120, 120, 120}));
  // A window beyond the budget leaves nothing over.
  EXPECT_EQ(rows_of({0.9, 0.1, 0.5, 0.6}, "300", budget), (std::vector<double>(4, 100)));
}

TEST(Simlayer, WhereAllAreLazyOrNoneTheyAreAlike) {
  const LayerAllocator::Budget budget{.rows = 100, .n_least = 40, .n_most = 500};
  EXPECT_EQ(rows_of({}, "60", budget), (std::vector<double>(4, 100)));
  EXPECT_EQ(rows_of({0.9, 0.9, 0.9, 0.9}, "60", budget), (std::vector<double>(4, 100)));
  EXPECT_EQ(rows_of({0.1, 0.1, 0.1, 0.1}, "60", budget), (std::vector<double>(4, 100)));
}

}  // namespace
}  // namespace winnow::policy
