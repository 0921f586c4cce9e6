// Selection on every instruction set, those before AVX2 included, against a stable sort.

#include "kernels/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "oracle/select_oracle.h"
#include "support/instruction_sets.h"

namespace winnow {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

int draw_below(std::mt19937& random, int n) {
  return std::uniform_int_distribution<int>(0, n - 1)(random);
}

float draw_normal(std::mt19937& random) {
  return std::normal_distribution<float>()(random);
}

float draw_special(std::mt19937& random) {
  constexpr float kSpecial[] = {
      0.0F,  -0.0F, kInfinity, -kInfinity, kNan,
      -kNan, 1.0F,  kDenormal, -kDenormal, std::numeric_limits<float>::max()};
  return kSpecial[draw_below(random, std::size(kSpecial))];
}

using Draw = std::function<float(std::mt19937&, int slot, int n)>;

struct Kind {
  const char* name;
  Draw draw;
};

// What makes the first guess miss: sampled scores are all lower than the others.
float draw_against_the_sample(std::mt19937& random, int slot, int n) {
  const auto n_scores = static_cast<size_t>(n);
  const size_t n_sample = kernels::n_sampled(n_scores);
  const auto guess = static_cast<size_t>(slot) * n_sample / n_scores;
  for (size_t i = guess - std::min<size_t>(guess, 1); i < std::min(guess + 2, n_sample); ++i) {
    if (kernels::sampled_slot(i, n_sample, n_scores) == static_cast<size_t>(slot)) {
      return draw_normal(random) - 100.0F;
    }
  }
  return draw_normal(random);
}

const std::vector<Kind> kKinds = {
    {"normal", [](auto& random, int /*slot*/, int /*n*/) { return draw_normal(random); }},
    {"drifting", [](auto& random, int slot,
                    int /*n*/) { return draw_normal(random) + 0.01F * static_cast<float>(slot); }},
    {"tied",
     [](auto& random, int /*slot*/, int /*n*/) { return std::round(4 * draw_normal(random)) / 4; }},
    {"ranks", [](auto& random, int /*slot*/,
                 int /*n*/) { return static_cast<float>(draw_below(random, 128)) / 128.0F; }},
    {"equal", [](auto& /*random*/, int /*slot*/, int /*n*/) { return -3.5F; }},
    {"zeros", [](auto& random, int /*slot*/,
                 int /*n*/) { return draw_below(random, 2) == 0 ? 0.0F : -0.0F; }},
    {"two values", [](auto& random, int /*slot*/,
                      int /*n*/) { return draw_below(random, 2) == 0 ? 1.0F : 2.0F; }},
    {"NaN only", [](auto& /*random*/, int /*slot*/, int /*n*/) { return kNan; }},
    {"one number", [](auto& /*random*/, int slot, int n) { return slot == n / 2 ? 1.0F : -kNan; }},
    {"special", [](auto& random, int /*slot*/, int /*n*/) { return draw_special(random); }},
    {"half NaN", [](auto& random, int /*slot*/,
                    int /*n*/) { return draw_below(random, 2) == 0 ? kNan : draw_normal(random); }},
    {"infinite",
     [](auto& random, int /*slot*/, int /*n*/) {
       return draw_below(random, 3) == 0 ? std::copysign(kInfinity, draw_normal(random)) : 1.0F;
     }},
    {"periodic", [](auto& /*random*/, int slot,
                    int /*n*/) { return slot % 32 == 0 ? 100.0F : static_cast<float>(slot % 3); }},
    {"rising", [](auto& /*random*/, int slot, int /*n*/) { return static_cast<float>(slot); }},
    {"falling", [](auto& /*random*/, int slot, int /*n*/) { return -static_cast<float>(slot); }},
    {"denormal",
     [](auto& random, int /*slot*/, int /*n*/) {
       return static_cast<float>(draw_below(random, 999) - 499) * kDenormal;
     }},
    {"equal in the leading bits",
     [](auto& random, int /*slot*/, int /*n*/) {
       return 1.0F + static_cast<float>(draw_below(random, 300)) * 0x1p-23F;
     }},
    {"against the sample", draw_against_the_sample},
};

std::vector<float> draw_scores(const Kind& kind, int n, std::mt19937& random) {
  std::vector<float> scores;
  for (int slot = 0; slot < n; ++slot) {
    scores.push_back(kind.draw(random, slot, n));
  }
  return scores;
}

void expect_equals_oracle(const std::vector<float>& scores, int n_keep) {
  const int n = static_cast<int>(scores.size());
  const std::vector<int> expected = oracle::select(scores, n_keep, 0, 0);
  const auto n_nan =
      std::count_if(scores.begin(), scores.end(), [](float x) { return std::isnan(x); });
  constexpr int kFirst = 5;
  constexpr int kCanary = -77;
  test::for_every_instruction_set([&](const std::string& name) {
    Scratch scratch;
    std::vector<int> kept(static_cast<size_t>(n_keep) + kernels::kSelectSlack + 1, kCanary);
    const std::span<int> room = std::span(kept).first(kept.size() - 1);
    ASSERT_EQ(kernels::select_highest(scores, n_keep, kFirst, room, scratch), n_nan) << name;
    ASSERT_EQ(kept.back(), kCanary) << name;
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(kept[i] - kFirst, expected[i]) << name << ", n " << n << ", n_keep " << n_keep;
    }
  });
}

TEST(SelectKernel, EqualsAStableSortOnAnyInput) {
  std::mt19937 random(1);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    for (int trial = 0; trial < 60; ++trial) {
      const int n = 1 + draw_below(random, trial % 3 == 0 ? 4500 : 150);
      expect_equals_oracle(draw_scores(kind, n, random), 1 + draw_below(random, n));
    }
    for (const int n_keep : {1, 512, 4096, 16384, 32767, 32768}) {
      expect_equals_oracle(draw_scores(kind, 32768, random), n_keep);
    }
  }
}

TEST(SelectKernel, EveryCountOfEveryLengthAroundAVector) {
  std::mt19937 random(2);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    for (const int n : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33}) {
      const std::vector<float> scores = draw_scores(kind, n, random);
      for (int n_keep = 1; n_keep <= n; ++n_keep) {
        expect_equals_oracle(scores, n_keep);
      }
    }
  }
}

// The first guess reads slots in ascending order, all within the scores.
TEST(SelectKernel, SampledSlotsAreInOrder) {
  for (const size_t n : {513U, 4096U, 100'000U, 1U << 30}) {
    const size_t n_sample = kernels::n_sampled(n);
    size_t previous = 0;
    for (size_t i = 0; i < n_sample; ++i) {
      const size_t slot = kernels::sampled_slot(i, n_sample, n);
      ASSERT_GE(slot, previous);
      ASSERT_LT(slot, n);
      previous = slot;
    }
  }
}

}  // namespace
}  // namespace winnow
