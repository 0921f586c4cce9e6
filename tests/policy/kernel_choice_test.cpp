// --kernels reference: the plainest kernels choose the rows that the fastest choose, to the bit.

#include "kernels/kernel_choice.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "kernels/append.h"
#include "oracle/select_oracle.h"
#include "policy/select.h"
#include "support/random_rows.h"

namespace winnow {
namespace {

using kernels::KernelChoice;

class KernelChoices : public testing::Test {
 protected:
  ~KernelChoices() override { kernels::choose_kernels(KernelChoice::kAuto); }

  template <class Result>
  static auto under(KernelChoice choice, const Result& result) {
    kernels::choose_kernels(choice);
    return result();
  }
};

std::vector<float> draw_scores(std::mt19937& random, int n, int n_values) {
  std::vector<float> scores;
  for (int i = 0; i < n; ++i) {
    scores.push_back(static_cast<float>(std::uniform_int_distribution<int>(1, n_values)(random)));
  }
  return scores;
}

// All scores equal, all rows protected (10 + 10 = 20 of a budget of 20), budgets beyond 4096.
TEST_F(KernelChoices, SelectTheSameRows) {
  std::mt19937 random(1);
  struct Case {
    int n;
    int n_keep;
    int n_first;
    int n_last;
  };
  for (const Case& each : {Case{200, 20, 10, 10}, Case{200, 64, 4, 16}, Case{5000, 4096, 0, 0},
                           Case{9000, 4097, 4, 1024}, Case{20000, 16384, 4, 0},
                           Case{40, 40, 20, 20}, Case{1000, 1, 0, 0}}) {
    for (const int n_values : {1, 2, 1 << 20}) {
      const std::vector<float> scores = draw_scores(random, each.n, n_values);
      const auto selected = [&] {
        return policy::select(scores, each.n_keep,
                              {.n_first = each.n_first, .n_last = each.n_last});
      };
      const std::vector<int> fast = under(KernelChoice::kAuto, selected);
      EXPECT_EQ(std::ssize(fast), each.n_keep);
      EXPECT_EQ(under(KernelChoice::kReference, selected), fast) << each.n << ", " << n_values;
      EXPECT_EQ(oracle::select(scores, each.n_keep, each.n_first, each.n_last), fast);
    }
  }
}

TEST_F(KernelChoices, ScoreAlike) {
  std::mt19937 random(2);
  for (const int dim : {64, 80, 128}) {
    for (const cache::RowType type : {cache::RowType::kF32, cache::RowType::kF16}) {
      const auto keys = test::random_floats(random, static_cast<size_t>(50 * dim));
      const auto direction = test::random_floats(random, static_cast<size_t>(dim));
      const auto scored = [&] {
        cache::Cache cache({.n_layers = 1,
                            .n_kv_heads = 1,
                            .head_dim = dim,
                            .key_type = type,
                            .value_type = type,
                            .max_rows = 50,
                            .stores_scores = true});
        test::append_tokens(cache, 0, 0, keys, keys, direction);
        const cache::HeadRows rows = cache.rows(0, 0);
        return std::vector<float>(rows.scores, rows.scores + rows.n);
      };
      EXPECT_EQ(under(KernelChoice::kReference, scored), under(KernelChoice::kAuto, scored));
    }
  }
}

TEST_F(KernelChoices, AreNamed) {
  EXPECT_EQ(kernels::parse_kernel_choice("auto"), KernelChoice::kAuto);
  EXPECT_EQ(kernels::parse_kernel_choice("reference"), KernelChoice::kReference);
  EXPECT_EQ(kernels::parse_kernel_choice("require"), KernelChoice::kRequire);
  EXPECT_THROW(kernels::parse_kernel_choice("plain"), Error);
}

}  // namespace
}  // namespace winnow
