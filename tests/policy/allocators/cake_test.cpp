#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policy/allocators.h"
#include "policy/golden_fixture.h"

namespace winnow::policy {
namespace {

double measured(const LayerView& layer, std::vector<GivenOption> options) {
  OptionReader reader(std::move(options));
  Scratch scratch;
  const double result = make_cake(reader)->measure(layer, scratch);
  EXPECT_TRUE(reader.problems().empty());
  return result;
}

// What the published formulas give on the fixture: entropy 43.452217, variance 0.018964.
TEST(Cake, MeasuresEntropyAndVarianceAsPublished) {
  const golden::Layer layer;
  EXPECT_NEAR(measured(layer.view(), {{"cake_window", "4"}}), 43.452217 * 0.018964, 3e-5);
  EXPECT_NEAR(measured(layer.view(), {{"cake_window", "4"}, {"tau2", "1000000"}}), 43.452217, 1e-3);
  EXPECT_NEAR(measured(layer.view(), {{"cake_window", "4"}, {"tau1", "1000000"}}), 0.018964, 1e-6);
}

std::vector<double> rows_of(const std::vector<double>& measured,
                            const LayerAllocator::Budget& budget) {
  OptionReader reader;
  std::vector<double> rows(3);
  make_cake(reader)->allocate(budget, measured, rows);
  return rows;
}

TEST(Cake, DividesWhatHeadsNeedNotKeepInProportion) {
  const LayerAllocator::Budget budget{.rows = 100, .n_least = 40, .n_most = 500};
  EXPECT_EQ(rows_of({1, 2, 3}, budget), (std::vector<double>{70, 100, 130}));
  EXPECT_EQ(rows_of({0, 0, 5}, budget), (std::vector<double>{40, 40, 220}));
}

TEST(Cake, WithoutMeasurementAllLayersAreAlike) {
  const LayerAllocator::Budget budget{.rows = 100, .n_least = 40, .n_most = 500};
  const std::vector<double> alike{100, 100, 100};
  EXPECT_EQ(rows_of({}, budget), alike);
  EXPECT_EQ(rows_of({0, 0, 0}, budget), alike);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(rows_of({nan, nan, nan}, budget), alike);
  EXPECT_EQ(rows_of({nan, 1, std::numeric_limits<double>::infinity()}, budget),
            (std::vector<double>{40, 220, 40}));
}

}  // namespace
}  // namespace winnow::policy
