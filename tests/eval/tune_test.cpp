// Tuning keeps to its bound, and says so where it cannot.

#include "eval/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/statistics.h"
#include "support/error_of.h"
#include "support/tiny_model.h"

namespace winnow::eval {
namespace {

using test::error_of;

const model::Model& tiny() {
  static const model::Model model(test::write_tiny_model(), {});
  return model;
}

// Look-ups of so many keys.
std::string document(int n) {
  std::string text;
  for (int i = 0; i < n; ++i) {
    text += "key" + std::to_string(i) + ": value" + std::to_string(7 * i) + "\n";
  }
  return text;
}

TuneOptions options(double max_loss) {
  TuneOptions made;
  made.policies = {"streaming:n_recent=1", "knorm:n_recent=1"};
  made.max_loss = max_loss;
  made.n_tuning = 5;
  made.n_held_out = 12;
  made.n_answer_tokens = 3;
  made.model.engine.n_batch = 64;
  return made;
}

TuneResult run(const std::string& text, const TuneOptions& options) {
  return tune(
      tiny(), text, options, [](const TuneStep&) {}, nullptr);
}

TEST(Tune, KeepsToTheBoundOnHeldOutQuestions) {
  for (const double max_loss : {0.3, 0.6, 0.97}) {
    const TuneResult result = run(document(40), options(max_loss));
    ASSERT_FALSE(result.steps.empty());
    const TuneStep* last_passed = nullptr;
    std::set<std::string> tried;
    for (const TuneStep& step : result.steps) {
      EXPECT_LE(step.n_questions, step.is_held_out ? 12 : 5);
      EXPECT_TRUE(tried.insert(step.policy + (step.is_held_out ? " held out" : "")).second)
          << step.policy << " twice";
      EXPECT_DOUBLE_EQ(step.upper, binomial_upper_bound(step.n_different, step.n_questions));
      if (step.is_held_out && step.is_passed) {
        EXPECT_LE(step.upper, max_loss);
        EXPECT_EQ(step.n_questions, 12);
        last_passed = &step;
      }
    }
    EXPECT_EQ(result.policy, last_passed == nullptr ? "" : last_passed->policy);
    if (last_passed != nullptr) {
      EXPECT_EQ(result.upper, last_passed->upper);
      EXPECT_LT(result.kv_bytes, result.kv_full_bytes);
    }
  }
}

TEST(Tune, RefusesWhatCannotBeShown) {
  const auto refusal = [](const std::string& text, const TuneOptions& made) {
    return error_of(ErrorCode::kInvalidArgument, [&] { run(text, made); });
  };
  // 12 held-out questions without a difference still leave 22 %.
  EXPECT_NE(refusal(document(40), options(0.2)).find("22.1 % at best"), std::string::npos);
  EXPECT_NE(refusal(document(4), options(0.5)).find("gives"), std::string::npos);
  for (const double bad : {0.0, 1.0, -0.5}) {
    refusal(document(40), options(bad));
  }
  TuneOptions made = options(0.5);
  made.policies = {};
  refusal(document(40), made);
  made = options(0.5);
  made.policies = {"knrom"};
  EXPECT_NE(refusal(document(40), made).find("knorm"), std::string::npos);
  made = options(0.5);
  made.policies = {"knorm:budget=7,n_recent=0"};
  EXPECT_NE(refusal(document(40), made).find("budget"), std::string::npos);
}

}  // namespace
}  // namespace winnow::eval
