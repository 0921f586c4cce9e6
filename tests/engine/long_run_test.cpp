// An answer of 20,000 tokens in a fixed budget: memory stays flat, rows at the budget, and the graph is built once.

#include <gtest/gtest.h>

#include "base/memory.h"
#include "support/generate.h"
#include "support/sanitizers.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

constexpr int kPrompt = 600;
constexpr int kBudget = 512;
constexpr int kGenerated = 20000;
constexpr int kInterval = 1000;  // between two looks at the memory

struct Memory {
  size_t rss;
  size_t scratch;  // of attention: it doubles a few times, as blocks at later positions are longer
};

// Old and new scratch are there together once; some pages are the allocator's.
size_t most_rss(const Memory& before, const Memory& now) {
  return before.rss + (now.scratch > before.scratch ? now.scratch : 0) + (64U << 10);
}

class LongRun : public ::testing::TestWithParam<const char*> {};

TEST_P(LongRun, StaysFlat) {
  const int n_generated = test::is_sanitized() ? kGenerated / 10 : kGenerated;
  const model::Model model(test::write_tiny_model({.n_ctx_train = 32768}), {});
  engine::Engine engine(model, {.n_threads = 1, .n_batch = 512});
  engine::Sequence sequence =
      test::make_sequence(model, GetParam(), kPrompt + kBudget, cache::RowType::kF16);
  const int slack = sequence.policy.slack();
  ASSERT_EQ(sequence.policy.budget_rows(), kBudget);
  const auto tokens = test::random_tokens(kPrompt + n_generated, model.hyper().n_vocab);
  test::feed_all(engine, sequence, std::span(tokens).first(kPrompt),
                 engine::PrefillOrder::kLayerMajor);

  int n_graphs = 0;
  Memory before{};
  for (int i = 0; i < n_generated; ++i) {
    const engine::DecodeInput input{&sequence, tokens[static_cast<size_t>(kPrompt + i)]};
    engine.decode({&input, 1});
    // Cut back to the budget whenever the slack is used up.
    const int n_rows = kBudget + (i + 1) % (slack + 1);
    ASSERT_EQ(sequence.cache.longest(), n_rows) << "after " << i + 1 << " tokens";
    if (i == 0) {
      n_graphs = engine.n_graphs_built();
    }
    if ((i + 1) % kInterval == 0) {
      const Memory now{process_memory().rss_anon_bytes, engine.peak_footprint().scratch_bytes};
      if (i + 1 > kInterval && !test::is_sanitized()) {
        EXPECT_LE(now.rss, most_rss(before, now)) << "after " << i + 1 << " tokens";
      }
      before = now;
    }
  }
  EXPECT_EQ(sequence.positions_fed, kPrompt + n_generated);
  EXPECT_EQ(engine.n_graphs_built(), n_graphs) << "decoding built its graph again";
  for (const std::vector<int>& head : test::kept_positions(sequence.cache)) {
    EXPECT_EQ(std::ssize(head), kBudget + n_generated % (slack + 1));
    EXPECT_EQ(head.back(), kPrompt + n_generated - 1);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, LongRun,
                         ::testing::Values("knorm:budget=512", "streaming:budget=512",
                                           "random:budget=512", "knorm:budget=512,slack=37"));

}  // namespace
}  // namespace winnow
