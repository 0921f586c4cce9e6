// Losses against plain double loops, and where they are known.

#include "eval/likelihood.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace winnow::eval {
namespace {

std::vector<float> random_logits(size_t n, unsigned seed, float scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<float> logits(n);
  for (float& logit : logits) {
    logit = normal(generator);
  }
  return logits;
}

std::vector<double> softmax(const std::vector<float>& logits) {
  std::vector<double> p(logits.begin(), logits.end());
  for (double& value : p) {
    value = std::exp(value);
  }
  const double sum = std::accumulate(p.begin(), p.end(), 0.0);
  for (double& value : p) {
    value /= sum;
  }
  return p;
}

std::vector<size_t> order(const std::vector<float>& logits) {
  std::vector<size_t> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), size_t{0});
  std::ranges::stable_sort(tokens, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  return tokens;
}

TEST(Likelihood, IsWhatTheDefinitionsSay) {
  for (unsigned seed = 0; seed < 50; ++seed) {
    const size_t n = 5 + seed * 7;
    const std::vector<float> full = random_logits(n, seed, 3);
    const std::vector<float> arm = random_logits(n, seed + 1000, 3);
    const auto p = softmax(full);
    const auto q = softmax(arm);
    const auto target = static_cast<size_t>(seed % 5);
    double kl = 0;
    for (size_t i = 0; i < n; ++i) {
      kl += p[i] * std::log(p[i] / q[i]);
    }
    const auto first = order(full);
    const auto second = order(arm);
    const auto n_common = std::count_if(first.begin(), first.begin() + 5, [&](size_t token) {
      return std::count(second.begin(), second.begin() + 5, token) > 0;
    });
    const PositionLoss loss = Reference(full).compare(arm, static_cast<model::Token>(target));
    EXPECT_NEAR(loss.nll, -std::log(q[target]), 1e-12);
    EXPECT_NEAR(loss.kl, kl, 1e-12);
    EXPECT_EQ(loss.top1, first[0] == second[0] ? 1 : 0);
    EXPECT_DOUBLE_EQ(loss.top5, static_cast<double>(n_common) / 5);
    EXPECT_NEAR(negative_log_likelihood(full, static_cast<model::Token>(target)),
                -std::log(p[target]), 1e-12);
  }
}

TEST(Likelihood, AModelAgreesWithItself) {
  const std::vector<float> logits = random_logits(4000, 3, 5);
  const PositionLoss loss = Reference(logits).compare(logits, 17);
  EXPECT_NEAR(loss.kl, 0, 1e-12);
  EXPECT_EQ(loss.top1, 1);
  EXPECT_EQ(loss.top5, 1);
}

TEST(Likelihood, TiesGoToTheLowerToken) {
  const std::vector<float> flat(10, 1.0F);
  std::vector<float> other(10, 0.0F);
  std::fill(other.begin() + 5, other.end(), 2.0F);
  const PositionLoss loss = Reference(flat).compare(other, 0);
  EXPECT_EQ(loss.top1, 0);
  EXPECT_EQ(loss.top5, 0);  // 0 to 4 against 5 to 9
  EXPECT_NEAR(negative_log_likelihood(flat, 3), std::log(10.0), 1e-15);
}

TEST(Likelihood, TakesLogitsOfAnySize) {
  std::vector<float> high(8, 0.0F);
  high[2] = 30000.0F;
  std::vector<float> without = high;
  without[7] = -std::numeric_limits<float>::infinity();
  const PositionLoss loss = Reference(high).compare(without, 2);
  EXPECT_NEAR(loss.nll, 0, 1e-12);
  EXPECT_NEAR(loss.kl, 0, 1e-12);
  EXPECT_TRUE(std::isfinite(Reference(without).compare(high, 2).kl));
}

}  // namespace
}  // namespace winnow::eval
