// qfilters: against plain dot products, and what kvpress and the published cache keep.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "policy/golden_fixture.h"
#include "policy/methods.h"
#include "support/filters.h"
#include "support/tiny_model.h"

namespace winnow::policy {
namespace {

using Slots = std::vector<int>;
using Heads = std::vector<std::array<int, 2>>;  // {layer, KV head}
using testing::HasSubstr;

double norm(std::span<const float> x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0));
}

// The fixture's filters of layer 1, stored negated as the authors do; ours point along the queries, at length 1.
struct GoldenFilters {
  Filters filters{.shape = {.n_layers = 1,
                            .n_heads = golden::kHeads,
                            .n_kv_heads = golden::kKvHeads,
                            .head_dim = golden::kHeadDim},
                  .is_guarded = {false, false}};
  std::vector<double> lengths;  // of the negated ones

  GoldenFilters() {
    const std::vector<float> all = golden::fill(6, 4UL * 2 * golden::kHeadDim);
    for (size_t head = 0; head < 2; ++head) {
      const auto stored = std::span(all).subspan((2 + head) * golden::kHeadDim, golden::kHeadDim);
      lengths.push_back(norm(stored));
      for (const float each : stored) {
        filters.directions.push_back(
            static_cast<float>(-static_cast<double>(each) / lengths.back()));
      }
    }
  }
  std::string spec(const std::string& options) const {
    return "qfilters:filters=" + test::write_filters(filters) + "," + options;
  }
  std::vector<float> scores(int kv_head) const {
    return golden::Layer().scores_by(make_qfilters, {{"filters", test::write_filters(filters)}}, 0,
                                     kv_head);
  }
};

TEST(QFilters, ScoresWhatKvpressScores) {
  const GoldenFilters golden;
  EXPECT_NEAR(static_cast<double>(golden.scores(0)[5]) * golden.lengths[0], 0.407398, 2e-6);
  EXPECT_NEAR(static_cast<double>(golden.scores(1)[7]) * golden.lengths[1], 0.408078, 2e-6);
  double sum = 0;
  for (int head = 0; head < 2; ++head) {
    for (const float score : golden.scores(head)) {
      sum += static_cast<double>(score) * golden.lengths[static_cast<size_t>(head)];
    }
  }
  EXPECT_NEAR(sum, -0.377767, 1e-5);
  EXPECT_EQ(golden::kept_by(golden.spec("budget=12,n_sink=0,n_recent=0")),
            (KeptSlots{{0, 2, 3, 5, 6, 7, 9, 10, 15, 19, 20, 21},
                       {0, 1, 6, 7, 8, 10, 11, 14, 17, 19, 21, 23}}));
}

// At most 12 rows, the last 4 always kept.
TEST(QFilters, KeepsWhatThePublishedCacheKeeps) {
  EXPECT_EQ(golden::kept_by(GoldenFilters().spec("budget=12,n_sink=0,n_recent=4")),
            (KeptSlots{{0, 2, 3, 5, 6, 9, 10, 15, 20, 21, 22, 23},
                       {0, 1, 7, 8, 10, 11, 17, 19, 20, 21, 22, 23}}));
}

TEST(QFilters, TheOppositeSignKeepsTheOppositeRows) {
  const GoldenFilters golden;
  const KeptSlots kept = golden::kept_by(golden.spec("budget=12,n_sink=0,n_recent=0"));
  const KeptSlots opposite = golden::kept_by(golden.spec("budget=12,n_sink=0,n_recent=0,sign=-1"));
  for (size_t head = 0; head < 2; ++head) {
    Slots both = kept[head];
    both.insert(both.end(), opposite[head].begin(), opposite[head].end());
    std::ranges::sort(both);
    Slots all(24);
    std::iota(all.begin(), all.end(), 0);
    EXPECT_EQ(both, all);
  }
}

// Filters from before rotation see keys as they were before it.
TEST(QFilters, FiltersFromBeforeRotationMeetKeysBeforeRotation) {
  constexpr int kDim = 16;
  constexpr int kRows = 50;
  Filters filters =
      test::random_filters({.n_layers = 1, .n_heads = 1, .n_kv_heads = 1, .head_dim = kDim});
  std::mt19937 random(5);
  const std::vector<float> before = test::random_floats(random, size_t{kRows} * kDim);
  const std::vector<float> keys = rotated_by_halves(before, 1, kDim);
  const TinyLayer layer({TinyHead::with_rows(kDim, keys, before)});
  const auto scores = [&](FilterFrame frame) {
    filters.frame = frame;
    return layer.scores_by(make_qfilters, {{"filters", test::write_filters(filters)}}, 0, 0);
  };
  const auto dots = [&](const std::vector<float>& rows) {
    std::vector<double> all;
    for (size_t i = 0; i < kRows; ++i) {
      all.push_back(std::inner_product(filters.directions.begin(), filters.directions.end(),
                                       rows.begin() + static_cast<std::ptrdiff_t>(i * kDim), 0.0));
    }
    return all;
  };
  const auto expect = [&](FilterFrame frame, const std::vector<float>& rows) {
    const std::vector<float> scored = scores(frame);
    const std::vector<double> expected = dots(rows);
    for (size_t i = 0; i < kRows; ++i) {
      EXPECT_NEAR(scored[i], expected[i], 1e-5) << i;
    }
  };
  expect(FilterFrame::kPost, keys);
  expect(FilterFrame::kLegacy, keys);
  expect(FilterFrame::kPre, before);
}

TEST(QFilters, GuardedHeadsFallBackToNorms) {
  GoldenFilters golden;
  golden.filters.is_guarded[1] = true;
  std::fill(golden.filters.directions.begin() + golden::kHeadDim, golden.filters.directions.end(),
            0.0F);
  const std::string options = "budget=12,n_sink=0,n_recent=0";
  const KeptSlots kept = golden::kept_by(golden.spec(options));
  EXPECT_EQ(kept[0], golden::kept_by(GoldenFilters().spec(options))[0]);
  EXPECT_EQ(kept[1], golden::kept_by("knorm:" + options)[1]);
  EXPECT_EQ(Policy::parse(golden.spec(options)).guarded_heads(), (Heads{{0, 1}}));
  EXPECT_EQ(Policy::parse(GoldenFilters().spec(options)).guarded_heads(), Heads());
  EXPECT_EQ(Policy::parse("knorm:" + options).guarded_heads(), Heads());
}

TEST(QFilters, WeakHeadsFallBackWhereThatIsWanted) {
  const GoldenFilters golden;
  const std::vector<float> kappa{1, 2, 3, -1, 1, 3};
  const std::string content =
      format_filters(golden.filters, {.arrays = {{"kv_kappa", {1, 2, 3}, kappa}}});
  const std::string path = test::temporary_path("weak.npz");
  write_file_atomically(path, content);
  const std::string options = ",budget=12,n_sink=0,n_recent=0";
  const KeptSlots kept = golden::kept_by("qfilters:filters=" + path + options + ",guard=weak");
  EXPECT_EQ(kept[0], golden::kept_by("qfilters:filters=" + path + options)[0]);
  EXPECT_EQ(kept[1], golden::kept_by("knorm:budget=12,n_sink=0,n_recent=0")[1]);
}

TEST(QFilters, HeadsThatSayLittleAboutAttentionFallBackWhereThatIsWanted) {
  GoldenFilters golden;
  golden.filters.correlation = {0.5F, 0.05F};
  const std::string options = "budget=12,n_sink=0,n_recent=0";
  const KeptSlots norms = golden::kept_by("knorm:" + options);
  const KeptSlots projections = golden::kept_by(GoldenFilters().spec(options));
  EXPECT_EQ(golden::kept_by(golden.spec(options)), projections);
  EXPECT_EQ(golden::kept_by(golden.spec(options + ",guard=weak")),
            (KeptSlots{projections[0], norms[1]}));
  EXPECT_EQ(Policy::parse(golden.spec(options + ",guard=weak")).guarded_heads(), (Heads{{0, 1}}));
  // Keys that move are scored anew, by the same heads' filters.
  EXPECT_EQ(
      Policy::parse(golden.spec(options + ",guard=weak,positions=contiguous")).guarded_heads(),
      (Heads{{0, 1}}));
  EXPECT_EQ(golden::kept_by(golden.spec(options + ",guard=weak,min_correlation=0")), projections);
  EXPECT_EQ(golden::kept_by(golden.spec(options + ",guard=weak,min_correlation=0.6")), norms);
  golden.filters.correlation[1] = std::nanf("");  // not measured
  EXPECT_EQ(golden::kept_by(golden.spec(options + ",guard=weak")), projections);
}

std::string refusal(const std::string& spec) {
  try {
    Policy::parse(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(QFilters, RefusesWhatHasNoFilters) {
  EXPECT_THAT(refusal("qfilters:budget=64"), HasSubstr("winnow calibrate"));
  EXPECT_THAT(refusal("qfilters:budget=64,filters=/no/such"), HasSubstr("/no/such"));
  const std::string spec = GoldenFilters().spec("budget=64");
  EXPECT_EQ(refusal(spec), "");
  EXPECT_THAT(refusal(spec + ",filters_digest=0123"), HasSubstr("has another content"));
  EXPECT_THAT(refusal(spec + ",sign=2"), HasSubstr("sign=2 is not one of 1|-1"));
  EXPECT_THAT(refusal(spec + ",guard=weak"), HasSubstr("needs the kappa of each head"));
  const std::string canonical = Policy::parse(spec).spec();
  EXPECT_THAT(canonical, HasSubstr("filters_digest="));
  EXPECT_EQ(Policy::parse(canonical).spec(), canonical);
}

}  // namespace
}  // namespace winnow::policy
