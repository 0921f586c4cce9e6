// qfilters@keysvd: the direction of planted keys, and what is kept along it.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "policy/key_directions.h"
#include "policy/methods.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

constexpr int kDim = 32;
using Vector = std::vector<double>;

Vector unit_vector(std::mt19937& random) {
  std::normal_distribution<double> normal;
  Vector x(kDim);
  double square = 0;
  for (double& each : x) {
    each = normal(random);
    square += each * each;
  }
  for (double& each : x) {
    each /= std::sqrt(square);
  }
  return x;
}

// n keys: drift · u + spread · normal · w + noise.
TinyHead planted(std::mt19937& random, int n, double drift, const Vector& u, double spread,
                 const Vector& w) {
  std::normal_distribution<double> normal;
  std::vector<float> keys;
  for (int i = 0; i < n; ++i) {
    const double along = spread * normal(random);
    for (size_t c = 0; c < kDim; ++c) {
      keys.push_back(static_cast<float>(drift * u[c] + along * w[c] + 0.3 * normal(random)));
    }
  }
  std::vector<float> values(keys.size());
  return TinyHead::with_rows(kDim, std::move(keys), std::move(values));
}

KeyDirections directions_of(const TinyHead& head, const KeySample& sample) {
  KeyDirections directions({.n_layers = 1, .n_kv_heads = 1, .head_dim = kDim, .sample = sample});
  const cache::HeadRows rows = head.rows({});
  directions.freeze(0, {&rows, 1});
  return directions;
}

double cosine(std::span<const float> a, const Vector& b) {
  return std::inner_product(b.begin(), b.end(), a.begin(), 0.0);
}

TEST(KeySvd, FindsThePlantedAxisWithAFixedSign) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 20; ++trial) {
    const Vector w = unit_vector(random);
    const TinyHead head = planted(random, 400, 0, w, 3, w);
    const KeyDirections found = directions_of(head, {.n_keys = 400});
    const auto direction = found.direction(0, 0);
    EXPECT_GT(std::abs(cosine(direction, w)), 0.99);
    const float largest =
        *std::ranges::max_element(direction, {}, [](float each) { return std::abs(each); });
    EXPECT_GT(largest, 0);
  }
}

// What all keys have in common is taken away, so a drift alone leaves noise.
TEST(KeySvd, LosesADriftThatIsNoSpread) {
  std::mt19937 random(2);
  double sum = 0;
  constexpr int kTrials = 20;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Vector u = unit_vector(random);
    const TinyHead head = planted(random, 400, 6, u, 0, u);
    sum += std::abs(cosine(directions_of(head, {.n_keys = 400}).direction(0, 0), u));
  }
  EXPECT_LT(sum / kTrials, 0.3);
}

TEST(KeySvd, OnlyTheFirstKeysCount) {
  std::mt19937 random(3);
  const Vector u = unit_vector(random);
  const Vector w = unit_vector(random);
  TinyHead head = planted(random, 100, 0, u, 3, u);
  const TinyHead later = planted(random, 300, 0, w, 9, w);
  head.keys.insert(head.keys.end(), later.keys.begin(), later.keys.end());
  head = TinyHead::with_rows(kDim, head.keys, head.keys);
  EXPECT_GT(std::abs(cosine(directions_of(head, {.n_keys = 100}).direction(0, 0), u)), 0.99);
  EXPECT_GT(std::abs(cosine(
                directions_of(head, {.n_keys = 100, .takes_block = true}).direction(0, 0), w)),
            0.97);
  EXPECT_FALSE(directions_of(head, {.n_keys = 401}).is_frozen(0));
}

TEST(KeySvd, KeysWithoutSpreadHaveNoDirection) {
  const TinyHead same =
      TinyHead::with_rows(kDim, std::vector<float>(10 * kDim, 2.0F), std::vector<float>(10 * kDim));
  const KeyDirections found = directions_of(same, {.n_keys = 10});
  for (const float each : found.direction(0, 0)) {
    EXPECT_EQ(each, 0);
  }
}

TEST(KeySvd, KeepsTheRowsThatReachFarthest) {
  std::mt19937 random(4);
  const TinyHead head = TinyHead::random(200, 5, kDim);
  const KeyDirections found = directions_of(head, {.n_keys = 50});
  const auto direction = found.direction(0, 0);
  const cache::HeadRows rows = head.rows({});
  const LayerView view{
      .layer = 0, .heads = {&rows, 1}, .n_positions = 200, .key_directions = &found};
  for (const int sign : {1, -1}) {
    const Policy policy =
        Policy::parse("qfilters@keysvd:budget=60,n_sink=0,n_recent=0,calib_tokens=50,sign=" +
                      std::to_string(sign));
    kernels::ParallelFor parallel(1);
    Choice choice;
    ASSERT_TRUE(policy.choose({&view, 1}, parallel, choice));
    std::vector<int> order(200);
    std::iota(order.begin(), order.end(), 0);
    const auto worth = [&](int row) {
      return sign * std::inner_product(direction.begin(), direction.end(),
                                       head.keys.begin() + std::ptrdiff_t{row} * kDim, 0.0);
    };
    std::ranges::sort(order, [&](int a, int b) { return worth(a) > worth(b); });
    order.resize(60);
    std::ranges::sort(order);
    EXPECT_EQ(choice.kept[0], order);
  }
}

}  // namespace
}  // namespace winnow::policy
