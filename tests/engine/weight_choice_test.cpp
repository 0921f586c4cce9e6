// Expanded weights are chosen only where they are far faster, pay for the prompt at hand and fit comfortably.

#include "engine/weight_choice.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "support/tiny_model.h"

namespace winnow::engine {
namespace {

using model::WeightType;

constexpr size_t kMiB = size_t{1} << 20;

WeightCandidate candidate(WeightType type, double speedup, double expand_ms = 100) {
  return {.type = type,
          .speed = {.file_ms = speedup, .expanded_ms = 1, .expand_ms = expand_ms},
          .expanded_bytes = 200 * kMiB};
}

constexpr PromptNeeds kRoomy{
    .n_tokens = 4000, .planned_bytes = 100 * kMiB, .available_bytes = 8000 * kMiB};

TEST(WeightChoice, ExpandsWhatIsFarFaster) {
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 3), kRoomy), WeightVerdict::kExpand);
}

TEST(WeightChoice, MentionsWhatIsSomewhatFasterAndIsSilentAboutTheRest) {
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 1.4), kRoomy), WeightVerdict::kMention);
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 1.1), kRoomy), WeightVerdict::kKeep);
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 0.5), kRoomy), WeightVerdict::kKeep);
}

TEST(WeightChoice, ExpandsNothingForPromptsThatAreReadSooner) {
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 3, 1000),
                  {.n_tokens = 100, .available_bytes = 8000 * kMiB}),
            WeightVerdict::kKeep);
}

TEST(WeightChoice, MentionsWhatMemoryDoesNotAllow) {
  PromptNeeds tight = kRoomy;
  tight.available_bytes = 599 * kMiB;  // 300 are needed, of at most a half
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 3), tight), WeightVerdict::kMention);
  tight.available_bytes = 600 * kMiB;
  EXPECT_EQ(judge(candidate(WeightType::kBf16, 3), tight), WeightVerdict::kExpand);
}

TEST(WeightChoice, NeverExpandsWhereItDoesNotPayOrFit) {
  std::mt19937 random(1);
  const auto between = [&](double low, double high) {
    return std::uniform_real_distribution<double>(low, high)(random);
  };
  int n_expanded = 0;
  for (int i = 0; i < 20000; ++i) {
    const WeightCandidate c{.type = WeightType::kBf16,
                            .speed = {.file_ms = between(0, 8),
                                      .expanded_ms = between(0, 8),
                                      .expand_ms = between(0, 3000)},
                            .expanded_bytes = static_cast<size_t>(between(0, 3e9))};
    const PromptNeeds needs{.n_tokens = static_cast<int>(between(1, 4000)),
                            .planned_bytes = static_cast<size_t>(between(0, 3e9)),
                            .available_bytes = static_cast<size_t>(between(0, 1e10))};
    if (judge(c, needs) != WeightVerdict::kExpand) {
      continue;
    }
    ++n_expanded;
    EXPECT_LT(c.speed.expanded_ms * needs.n_tokens + c.speed.expand_ms,
              c.speed.file_ms * needs.n_tokens);
    EXPECT_GE(c.speed.file_ms, 1.5 * c.speed.expanded_ms * (1 - 1e-12));
    EXPECT_LE(c.expanded_bytes + needs.planned_bytes, needs.available_bytes / 2 + 1);
    // What is decided so stays decided with more memory and longer prompts.
    PromptNeeds more = needs;
    more.n_tokens *= 2;
    more.available_bytes *= 2;
    EXPECT_EQ(judge(c, more), WeightVerdict::kExpand);
  }
  EXPECT_GT(n_expanded, 1000);
}

TEST(WeightChoice, StandsTimesThatCannotBe) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const double odd : {0.0, nan}) {
    const WeightCandidate c{.speed = {.file_ms = odd, .expanded_ms = odd, .expand_ms = odd}};
    EXPECT_EQ(judge(c, kRoomy), WeightVerdict::kKeep);
  }
}

// What is measured of bf16 and f16, and which of them are.
struct Measured {
  WeightChoice choice;
  std::vector<WeightType> types;
};

Measured choose(double bf16, double f16, const PromptNeeds& needs = kRoomy) {
  Measured measured;
  measured.choice = choose_weights(needs, [&](WeightType type) {
    measured.types.push_back(type);
    return candidate(type, type == WeightType::kBf16 ? bf16 : f16);
  });
  return measured;
}

TEST(WeightChoice, TakesBf16WhereItDoes) {
  const Measured measured = choose(3, 5);
  EXPECT_EQ(measured.choice.type, WeightType::kBf16);
  EXPECT_EQ(measured.choice.expanded_bytes, 200 * kMiB);
  EXPECT_EQ(measured.choice.speedup, 3);
  EXPECT_EQ(measured.choice.advice, "");
  EXPECT_EQ(measured.types, std::vector<WeightType>{WeightType::kBf16});
}

TEST(WeightChoice, TakesF16WhereBf16DoesNot) {
  EXPECT_EQ(choose(0.7, 2).choice.type, WeightType::kF16);
  const WeightChoice neither = choose(1.0, 0.9).choice;
  EXPECT_EQ(neither.type, WeightType::kFile);
  EXPECT_EQ(neither.speedup, 1.0);
  EXPECT_EQ(neither.expanded_bytes, 0U);
  EXPECT_EQ(neither.advice, "");
}

TEST(WeightChoice, SaysWhatAFlagWouldBringAndTake) {
  const std::string advice = choose(1.3, 1.4).choice.advice;
  for (const char* part : {"--weights prompt-f16", "1.4 times", "200.0 MiB"}) {
    EXPECT_NE(advice.find(part), std::string::npos) << advice;
  }
  PromptNeeds tight = kRoomy;
  tight.available_bytes = 300 * kMiB;
  const WeightChoice choice = choose(3, 1, tight).choice;
  EXPECT_EQ(choice.type, WeightType::kFile);
  EXPECT_NE(choice.advice.find("--weights prompt-bf16"), std::string::npos) << choice.advice;
  EXPECT_NE(choice.advice.find("300.0 MiB available"), std::string::npos) << choice.advice;
}

TEST(WeightChoice, MeasuresOnlyWhatCanGain) {
  const auto is_measured = [](ggml_type type, int n_tokens) {
    test::TinyModelOptions options;
    options.matrix_type = type;
    const model::GgufFile file(test::write_tiny_model(options));
    PromptNeeds needs = kRoomy;
    needs.n_tokens = n_tokens;
    return choose_weights(file, needs, 512, 1).speedup > 0;
  };
  EXPECT_TRUE(is_measured(GGML_TYPE_Q4_1, 64));
  EXPECT_FALSE(is_measured(GGML_TYPE_Q4_1, 63));
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    EXPECT_FALSE(is_measured(type, 4000)) << ggml_type_name(type);
  }
}

TEST(WeightSpeed, IsMeasuredForEveryBatchAndNumberOfThreads) {
  test::TinyModelOptions options;
  options.matrix_type = GGML_TYPE_Q8_0;
  const model::GgufFile file(test::write_tiny_model(options));
  for (const int n_tokens : {8, 64, 512}) {
    for (const int n_threads : {1, 2, 5}) {
      const auto speed = model::measure_weight_speed(file, WeightType::kBf16, n_tokens, n_threads);
      EXPECT_GT(speed.file_ms, 0);
      EXPECT_GT(speed.expanded_ms, 0);
      EXPECT_GT(speed.expand_ms, 0);
    }
  }
}

}  // namespace
}  // namespace winnow::engine
