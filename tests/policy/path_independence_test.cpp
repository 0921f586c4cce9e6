// Evicting in any steps ends with the rows that one eviction at the end keeps, for given keys and values.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "kernels/parallel.h"
#include "policy/methods.h"
#include "policy/policy.h"
#include "policy/tiny_layer.h"

namespace winnow::policy {
namespace {

constexpr int kHeads = 2;
constexpr int kLayer = 5;

int draw_between(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

// What a cache would do: appends a chunk's rows to every head, then keeps what the policy chooses.
void feed(const Policy& policy, const std::vector<TinyHead>& input, int begin, int end,
          kernels::ParallelFor& parallel, std::vector<TinyHead>& held) {
  for (size_t head = 0; head < held.size(); ++head) {
    const auto slice = [&](const auto& all, auto& to) {
      to.insert(to.end(), all.begin() + begin, all.begin() + end);
    };
    slice(input[head].positions, held[head].positions);
    slice(input[head].norms, held[head].norms);
  }
  const std::vector<std::vector<int>> kept =
      policy.choose(TinyLayer(held, kLayer).view(), parallel);
  for (size_t head = 0; head < kept.size(); ++head) {
    TinyHead survivors;
    for (const int slot : kept[head]) {
      survivors.positions.push_back(held[head].positions[static_cast<size_t>(slot)]);
      survivors.norms.push_back(held[head].norms[static_cast<size_t>(slot)]);
    }
    held[head] = survivors;
  }
}

// The positions each head holds at the end, when the input is cut at most max_chunk rows apart.
std::vector<std::vector<int32_t>> kept_positions(const Policy& policy,
                                                 const std::vector<TinyHead>& input, int max_chunk,
                                                 std::mt19937& random) {
  kernels::ParallelFor parallel(1);
  std::vector<TinyHead> held(input.size());
  const int n = static_cast<int>(input[0].positions.size());
  for (int begin = 0; begin < n;) {
    const int end = std::min(n, begin + (max_chunk >= n ? n : draw_between(random, 1, max_chunk)));
    feed(policy, input, begin, end, parallel, held);
    begin = end;
  }
  std::vector<std::vector<int32_t>> positions;
  for (const TinyHead& head : held) {
    positions.push_back(head.positions);
  }
  return positions;
}

float draw_norm(std::mt19937& random, int n_values) {
  const int value = draw_between(random, 0, n_values);
  if (value == n_values && draw_between(random, 0, 3) == 0) {
    return draw_between(random, 0, 1) == 0 ? std::numeric_limits<float>::quiet_NaN()
                                           : std::numeric_limits<float>::infinity();
  }
  return static_cast<float>(value);
}

void expect_path_independence(const Method& method, std::mt19937& random) {
  const int n_sink = draw_between(random, 0, 5);
  const int n_recent = draw_between(random, -1, 6);
  const int budget = draw_between(random, n_sink + std::max(n_recent, 2) + 1, 24);
  const Policy policy =
      Policy::parse(std::string(method.name) + ":budget=" + std::to_string(budget) +
                    ",n_sink=" + std::to_string(n_sink) + ",n_recent=" + std::to_string(n_recent));
  const int n = draw_between(random, 1, 80);
  const int n_values = draw_between(random, 1, 5);  // few values: heavy ties
  std::vector<TinyHead> input;
  for (int head = 0; head < kHeads; ++head) {
    std::vector<float> norms(static_cast<size_t>(n));
    std::generate(norms.begin(), norms.end(), [&] { return draw_norm(random, n_values); });
    input.push_back(TinyHead::with_norms(norms));
  }
  const auto one_shot = kept_positions(policy, input, n, random);
  ASSERT_EQ(std::ssize(one_shot[0]), std::min(n, budget));
  ASSERT_EQ(kept_positions(policy, input, 1, random), one_shot) << policy.spec() << ", n " << n;
  for (int max_chunk : {3, 17, 40}) {
    ASSERT_EQ(kept_positions(policy, input, max_chunk, random), one_shot)
        << policy.spec() << ", n " << n << ", chunks up to " << max_chunk;
  }
}

TEST(PathIndependence, AnyChunkingKeepsWhatOneShotKeeps) {
  std::mt19937 random(7);
  for (const Method& method : kMethods) {
    if (method.make == nullptr || !method.is_path_independent) {
      continue;
    }
    for (int trial = 0; trial < 1500 && !HasFatalFailure(); ++trial) {
      expect_path_independence(method, random);
    }
  }
}

}  // namespace
}  // namespace winnow::policy
