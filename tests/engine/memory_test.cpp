// Eviction really frees memory: rows within capacity after every call, pages back with the system, and the peak that
// layer-major prefill promises.

#include <gtest/gtest.h>

#include "base/memory.h"
#include "support/generate.h"
#include "support/models.h"
#include "support/sanitizers.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;

// 16 layers x 4 heads x 64 dimensions: 64 heads' rows of 264 bytes, 16.5 KiB a token.
test::TinyModelOptions wide_cache() {
  return {.n_layers = 16, .n_heads = 4, .n_kv_heads = 4, .head_dim = 64, .n_ctx_train = 16384};
}

TEST(Memory, RowsNeverExceedTheCapacityAfterACall) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto prompt = test::random_tokens(300, model.hyper().n_vocab);
  for (const char* policy : {"knorm:budget=50", "streaming:budget=50", "random:budget=50,slack=7",
                             "knorm:budget=50,n_recent=0,slack=1"}) {
    Sequence sequence = test::make_sequence(model, policy);
    const int budget = sequence.policy.budget_rows();
    const int capacity = budget + sequence.policy.slack();
    test::feed_all(engine, sequence, prompt, PrefillOrder::kLayerMajor);
    EXPECT_EQ(sequence.cache.longest(), budget);
    for (const int32_t token : test::random_tokens(40, model.hyper().n_vocab, 2)) {
      test::decode_all(engine, sequence, {&token, 1});
      EXPECT_LE(sequence.cache.longest(), capacity) << policy;
    }
    EXPECT_EQ(sequence.positions_fed, 340);
  }
}

TEST(Memory, PerChunkEvictionBoundsThePeakAndSaysSo) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "knorm:budget=50", 114);
  const auto prompt = test::random_tokens(1000, model.hyper().n_vocab);
  const engine::Feed feed{.sequence = &sequence, .tokens = prompt};
  engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kPerChunk, .progress = {}});
  EXPECT_EQ(sequence.cache.longest(), 50);
  EXPECT_TRUE(sequence.evicted_during_prompt);
  const size_t most =
      static_cast<size_t>((50 + 64) * model.hyper().n_layers * model.hyper().n_kv_heads) *
      sequence.cache.shape().row_bytes();
  EXPECT_LE(sequence.cache.peak_bytes(), most);
}

TEST(Memory, EvictionGivesPagesBackToTheSystem) {
  const Model model(test::write_tiny_model(wide_cache()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 512});
  const auto prompt = test::random_tokens(4000, model.hyper().n_vocab);
  Sequence sequence = test::make_sequence(model, "knorm:budget=256", 8192, cache::RowType::kF16);
  const engine::Feed feed{.sequence = &sequence, .tokens = prompt};
  engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kNever, .progress = {}});
  const size_t before = process_memory().rss_anon_bytes;
  const size_t committed_before = sequence.cache.committed_bytes();
  const size_t rows_before = sequence.cache.now_bytes();
  EXPECT_GE(committed_before, rows_before);

  const int32_t token = 1;
  test::decode_all(engine, sequence, {&token, 1});  // over the budget, so it evicts
  const size_t after = process_memory().rss_anon_bytes;
  const size_t freed = committed_before - sequence.cache.committed_bytes();
  EXPECT_EQ(sequence.cache.longest(), 256);
  EXPECT_GT(freed, rows_before * 9 / 10);
  // What the allocator says is what the system sees, to within a megabyte of other traffic. (The address sanitizer
  // holds freed memory back, and is traffic of its own.)
  EXPECT_NEAR(static_cast<double>(before - after), static_cast<double>(freed),
              test::is_sanitized() ? 16 << 20 : 1 << 20);
}

TEST(Memory, StaysFlatOverTwoThousandDecodedTokens) {
  const Model model(test::write_tiny_model(wide_cache()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 512});
  const auto prompt = test::random_tokens(600, model.hyper().n_vocab);
  const auto tokens = test::random_tokens(2000, model.hyper().n_vocab, 3);
  const std::span<const int32_t> all(tokens);
  for (const char* policy : {"knorm:budget=128", "h2o:budget=128", "tova:budget=128,slack=8"}) {
    Sequence sequence = test::make_sequence(model, policy, 8192, cache::RowType::kF16);
    test::feed_all(engine, sequence, prompt, PrefillOrder::kLayerMajor);
    for (const int32_t token : all.first(100)) {
      test::decode_all(engine, sequence, {&token, 1});
    }
    const size_t early = process_memory().rss_anon_bytes;
    for (const int32_t token : all.subspan(100)) {
      test::decode_all(engine, sequence, {&token, 1});
      ASSERT_LE(sequence.cache.longest(), 128 + sequence.policy.slack());
    }
    const size_t late = process_memory().rss_anon_bytes;
    if (!test::is_sanitized()) {  // it holds freed memory back
      EXPECT_LE(late, early + (512U << 10)) << policy;
    }
    EXPECT_EQ(sequence.positions_fed, 2600);
  }
}

TEST(Memory, LayerMajorHoldsOneLayerOfTheWholePrompt) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  constexpr int kPrompt = 8000;
  constexpr int kBudget = 512;
  const Model model(path, {.weights = {model::WeightType::kBf16}, .n_threads = 2});
  Engine engine(model, {.n_threads = 2, .n_batch = 512});
  Sequence sequence = test::make_sequence(model, "knorm:budget=512", 8192, cache::RowType::kF16);
  const auto tokens = test::prose_tokens(model, kPrompt);
  const engine::Feed feed{.sequence = &sequence, .tokens = tokens};
  engine.feed({&feed, 1}, {.order = PrefillOrder::kLayerMajor, .progress = {}});
  const size_t row =
      sequence.cache.shape().row_bytes() * static_cast<size_t>(model.hyper().n_kv_heads);
  const size_t promised = static_cast<size_t>(model.hyper().n_layers * kBudget + kPrompt) * row;
  EXPECT_LE(static_cast<double>(sequence.cache.peak_bytes()), 1.05 * static_cast<double>(promised));
  EXPECT_GE(
      engine.peak_footprint().residual_bytes,
      static_cast<size_t>(kPrompt) * static_cast<size_t>(model.hyper().n_embd) * sizeof(float));
  std::printf("peak rows %.1f MiB (%.3f of the promise), residual stream %.1f MiB\n",
              static_cast<double>(sequence.cache.peak_bytes()) / (1 << 20),
              static_cast<double>(sequence.cache.peak_bytes()) / static_cast<double>(promised),
              static_cast<double>(engine.peak_footprint().residual_bytes) / (1 << 20));
}

}  // namespace
}  // namespace winnow
