#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "kernels/residual_similarity.h"
#include "policy/allocators.h"
#include "policy/golden_fixture.h"

namespace winnow::policy {
namespace {

std::vector<double> rows_of(const std::vector<double>& measured, const char* share = "0.35") {
  OptionReader reader(std::vector<GivenOption>{{"squeeze_share", share}});
  std::vector<double> rows(measured.size());
  make_squeeze(reader)->allocate({.rows = 100, .n_least = 5, .n_most = 1000}, measured, rows);
  return rows;
}

TEST(Squeeze, TakesFromTheGroupOfTheHighest) {
  // Groups: 0.1 0.12 | 0.5 | 0.9 0.91.
  const std::vector<double> rows = rows_of({0.9, 0.1, 0.5, 0.12, 0.91});
  EXPECT_NEAR(rows[0], 35, 1e-4);
  EXPECT_NEAR(rows[4], 35, 1e-4);
  for (const size_t layer : {1, 2, 3}) {
    EXPECT_NEAR(rows[layer], (500 - 70) / 3.0, 1e-4);
  }
  EXPECT_EQ(rows_of({0.9, 0.1, 0.5}, "1"), (std::vector<double>{100, 100, 100}));
}

TEST(Squeeze, OfFewLayersTakesTheHighest) {
  EXPECT_EQ(rows_of({0.5}), (std::vector<double>{100}));
  EXPECT_EQ(rows_of({0.5, 0.5, 0.5}), (std::vector<double>{100, 100, 100}));
  EXPECT_NEAR(rows_of({0.5, 0.6})[1], 35, 1e-4);
  EXPECT_NEAR(rows_of({0.5, 0.6})[0], 165, 1e-4);
  EXPECT_NEAR(rows_of({0.6, 0.5, 0.6})[1], 230, 1e-3);
}

// Against trying every way to cut the sorted values in three.
TEST(Squeeze, FindsTheBestGroups) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<double> values;
    for (int n = std::uniform_int_distribution<int>(3, 12)(random); n > 0; --n) {
      values.push_back(std::uniform_real_distribution<double>(-1, 1)(random));
    }
    std::vector<double> sorted = values;
    std::ranges::sort(sorted);
    const auto cost = [&](size_t begin, size_t end) {
      double mean = 0;
      for (size_t i = begin; i < end; ++i) {
        mean += sorted[i] / static_cast<double>(end - begin);
      }
      double sum = 0;
      for (size_t i = begin; i < end; ++i) {
        sum += (sorted[i] - mean) * (sorted[i] - mean);
      }
      return sum;
    };
    double best = 1e9;
    size_t best_third = 0;
    for (size_t second = 1; second < sorted.size(); ++second) {
      for (size_t third = second + 1; third < sorted.size(); ++third) {
        const double all = cost(0, second) + cost(second, third) + cost(third, sorted.size());
        if (all < best) {
          best = all;
          best_third = third;
        }
      }
    }
    const std::vector<double> rows = rows_of(values);
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(rows[i] < 50, values[i] >= sorted[best_third]) << "trial " << trial;
    }
  }
}

// The published fixture: hidden states H, attention by its queries, keys and values, output weights.
TEST(ResidualSimilarity, IsThatOfThePublishedFixture) {
  const std::vector<float> hidden = golden::plain_queries();  // of 32 channels: the projection is 1
  const std::vector<float> q = golden::queries();
  const std::vector<float> k = golden::keys();
  const std::vector<float> v = golden::values();
  const std::vector<float> w = golden::output_weights();
  constexpr int kRows = golden::kRows;
  constexpr int kDim = golden::kHeadDim;
  constexpr int kEmbd = golden::kHeads * kDim;
  kernels::ResidualSimilarity similarity(1);
  for (int t = 0; t < kRows; ++t) {
    std::vector<double> attended(kEmbd);
    for (int head = 0; head < golden::kHeads; ++head) {
      const int kv_head = head / (golden::kHeads / golden::kKvHeads);
      std::vector<double> weights;
      double sum = 0;
      for (int row = 0; row <= t; ++row) {
        double product = 0;
        for (int c = 0; c < kDim; ++c) {
          product +=
              static_cast<double>(q[static_cast<size_t>((t * golden::kHeads + head) * kDim + c)]) *
              static_cast<double>(k[static_cast<size_t>((kv_head * kRows + row) * kDim + c)]);
        }
        weights.push_back(std::exp(product * static_cast<double>(golden::scale())));
        sum += weights.back();
      }
      for (int row = 0; row <= t; ++row) {
        for (int c = 0; c < kDim; ++c) {
          attended[static_cast<size_t>(head * kDim + c)] +=
              weights[static_cast<size_t>(row)] / sum *
              static_cast<double>(v[static_cast<size_t>((kv_head * kRows + row) * kDim + c)]);
        }
      }
    }
    std::vector<float> after(kEmbd);
    for (int i = 0; i < kEmbd; ++i) {
      double out = static_cast<double>(hidden[static_cast<size_t>(t * kEmbd + i)]);
      for (int j = 0; j < kEmbd; ++j) {
        out += static_cast<double>(w[static_cast<size_t>(i * kEmbd + j)]) *
               attended[static_cast<size_t>(j)];
      }
      after[static_cast<size_t>(i)] = static_cast<float>(out);
    }
    similarity.add(0, kernels::cosine(hidden.data() + t * kEmbd, after.data(), kEmbd));
  }
  EXPECT_NEAR(similarity.mean(0), 0.706590, 2e-6);
}

TEST(ResidualSimilarity, OfNothingIsNothing) {
  const float zero[2] = {0, 0};
  const float nan[2] = {NAN, 1};
  const float one[2] = {1, 0};
  EXPECT_EQ(kernels::cosine(zero, one, 2), 0);
  EXPECT_EQ(kernels::cosine(nan, one, 2), 0);
  EXPECT_EQ(kernels::cosine(one, one, 2), 1);
  EXPECT_EQ(kernels::ResidualSimilarity(2).mean(1), 0);
}

}  // namespace
}  // namespace winnow::policy
