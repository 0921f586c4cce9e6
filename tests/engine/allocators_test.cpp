// Budgets that differ between layers and heads, through whole models: exact, within what is promised, and freed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/memory.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/sanitizers.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;

constexpr const char* kStacks[] = {"knorm+adakv",    "knorm+pyramid", "knorm+pyramid+adakv",
                                   "knorm+pool",     "random+pool",   "knorm+squeeze",
                                   "tova+cake+adakv"};

test::TinyModelOptions several_heads() {
  return {.n_layers = 4, .n_heads = 6, .n_kv_heads = 3, .head_dim = 32};
}

PrefillOrder order_of(const Sequence& sequence) {
  return sequence.policy.needs_all_layers() ? PrefillOrder::kChunkMajor : PrefillOrder::kLayerMajor;
}

std::vector<size_t> lengths(const cache::Cache& cache) {
  std::vector<size_t> n;
  for (const auto& head : test::kept_positions(cache)) {
    n.push_back(head.size());
  }
  return n;
}

size_t total(const cache::Cache& cache) {
  const auto n = lengths(cache);
  return std::accumulate(n.begin(), n.end(), size_t{0});
}

bool is_ragged(const cache::Cache& cache) {
  const auto n = lengths(cache);
  return std::any_of(n.begin(), n.end(), [&](size_t rows) { return rows != n[0]; });
}

size_t n_heads(const Sequence& sequence) {
  const cache::CacheShape& shape = sequence.cache.shape();
  return static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads);
}

TEST(RaggedHeads, TheSumIsTheBudgetAfterThePromptAndCapacityAfterEveryToken) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto prompt = test::random_tokens(300, model.hyper().n_vocab);
  for (const std::string stack : kStacks) {
    for (const size_t slack : {size_t{0}, size_t{5}}) {
      Sequence sequence = test::make_sequence(
          model, stack + ":budget=50,n_recent=8,slack=" + std::to_string(slack));
      test::feed_all(engine, sequence, prompt, order_of(sequence));
      EXPECT_EQ(total(sequence.cache), 50 * n_heads(sequence)) << stack;
      EXPECT_TRUE(is_ragged(sequence.cache)) << stack;
      for (const int32_t token : test::random_tokens(40, model.hyper().n_vocab, 2)) {
        test::decode_all(engine, sequence, {&token, 1});
        if (slack == 0) {
          ASSERT_EQ(total(sequence.cache), 50 * n_heads(sequence)) << stack;
        }
        ASSERT_LE(total(sequence.cache), (50 + slack) * n_heads(sequence)) << stack;
        ASSERT_GE(std::ranges::min(lengths(sequence.cache)), 4 + 8 + 1U);
      }
    }
  }
}

TEST(RaggedHeads, PerChunkEvictionKeepsTheSum) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(400, model.hyper().n_vocab);
  for (const std::string stack : kStacks) {
    Sequence sequence = test::make_sequence(model, stack + ":budget=50,n_recent=8");
    const engine::Feed feed{.sequence = &sequence, .tokens = prompt};
    engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kPerChunk, .progress = {}});
    EXPECT_EQ(total(sequence.cache), 50 * n_heads(sequence)) << stack;
    EXPECT_TRUE(sequence.evicted_during_prompt);
    EXPECT_LE(sequence.cache.peak_bytes(),
              (50 + 64) * n_heads(sequence) * sequence.cache.shape().row_bytes());
  }
}

// What layers are measured by does not depend on chunks, threads or a cache file on the way.
TEST(MeasuredLayers, AreTheSameForAnyChunking) {
  const Model model(test::write_tiny_model(several_heads()), {});
  const auto prompt = test::random_tokens(300, model.hyper().n_vocab);
  for (const char* policy : {"knorm+squeeze:budget=50", "knorm+cake:budget=50"}) {
    std::vector<std::vector<int>> expected;
    for (const int n_batch : {16, 50, 300}) {
      for (const int n_threads : {1, 2}) {
        Engine engine(model, {.n_threads = n_threads, .n_batch = n_batch});
        Sequence sequence = test::make_sequence(model, policy);
        test::feed_all(engine, sequence, prompt, PrefillOrder::kChunkMajor);
        const auto kept = test::kept_positions(sequence.cache);
        if (expected.empty()) {
          expected = kept;
        }
        EXPECT_EQ(kept, expected) << policy << " " << n_batch;
      }
    }
  }
}

TEST(MeasuredLayers, CountEveryPromptTokenAndNoOther) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "knorm+squeeze:budget=50");
  test::feed_all(engine, sequence, test::random_tokens(300, model.hyper().n_vocab),
                 PrefillOrder::kChunkMajor);
  const auto sums = sequence.similarity.sums(2);
  EXPECT_EQ(sums.n, 300);
  EXPECT_GT(std::abs(sequence.similarity.mean(2)), 1e-3);
  EXPECT_NE(sums.cosines, sequence.similarity.sums(1).cosines);
  test::decode_all(engine, sequence, test::random_tokens(9, model.hyper().n_vocab, 2));
  EXPECT_EQ(sequence.similarity.sums(2).n, 300);
  EXPECT_EQ(sequence.similarity.sums(2).cosines, sums.cosines);
}

TEST(MeasuredLayers, CannotBeCutOneByOne) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  for (const char* policy : {"knorm+squeeze:budget=50", "knorm+cake:budget=50"}) {
    Sequence sequence = test::make_sequence(model, policy);
    EXPECT_NE(test::error_of(ErrorCode::kInvalidArgument,
                             [&] {
                               test::feed_all(engine, sequence,
                                              test::random_tokens(90, model.hyper().n_vocab),
                                              PrefillOrder::kLayerMajor);
                             })
                  .find("needs --prefill chunk-major"),
              std::string::npos);
  }
}

TEST(RaggedHeads, BothOrdersKeepTheSameRows) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  for (const char* policy : {"knorm+adakv:budget=30", "knorm+pyramid:budget=120",
                             "knorm+pyramid+adakv:budget=30", "random+adakv:budget=30"}) {
    Sequence by_chunk = test::make_sequence(model, policy);
    Sequence by_layer = test::make_sequence(model, policy);
    test::feed_all(engine, by_chunk, tokens, PrefillOrder::kChunkMajor);
    test::feed_all(engine, by_layer, tokens, PrefillOrder::kLayerMajor);
    EXPECT_EQ(test::kept_positions(by_layer.cache), test::kept_positions(by_chunk.cache)) << policy;
    test::feed_all(engine, by_chunk, tokens, PrefillOrder::kChunkMajor);  // ragged from the start
    test::feed_all(engine, by_layer, tokens, PrefillOrder::kLayerMajor);
    EXPECT_EQ(test::kept_positions(by_layer.cache), test::kept_positions(by_chunk.cache)) << policy;
  }
}

// One sequence loses what the policy says, in the other the same rows are hidden.
TEST(RaggedHeads, EvictedEqualsMasked) {
  for (const test::TinyModelOptions& options :
       {several_heads(), test::TinyModelOptions{.architecture = "qwen2", .head_dim = 20},
        test::TinyModelOptions{
            .architecture = "gemma3", .n_layers = 7, .head_dim = 32, .swa_window = 100}}) {
    const Model model(test::write_tiny_model(options), {});
    Engine engine(model, {.n_threads = 2, .n_batch = 64});
    const auto tokens = test::random_tokens(360, model.hyper().n_vocab);
    const std::span<const int32_t> all(tokens);
    for (const std::string stack : kStacks) {
      Sequence evicted = test::make_sequence(model, stack + ":budget=50,n_recent=8,slack=100");
      Sequence masked = test::make_sequence(model, "full");
      test::feed_all(engine, evicted, all.first(300), order_of(evicted));
      test::feed_all(engine, masked, all.first(300));
      for (int layer = 0; layer < model.hyper().n_layers; ++layer) {
        for (int kv_head = 0; kv_head < model.hyper().n_kv_heads; ++kv_head) {
          const auto kept = evicted.cache.positions(layer, kv_head);
          const auto held = masked.cache.positions(layer, kv_head);
          std::vector<int> slots;
          for (const int position : kept) {
            slots.push_back(
                static_cast<int>(std::ranges::lower_bound(held, position) - held.begin()));
          }
          masked.cache.hide_others(layer, kv_head, slots);
        }
      }
      EXPECT_TRUE(test::same_bits(test::decode_all(engine, evicted, all.subspan(300, 30)),
                                  test::decode_all(engine, masked, all.subspan(300, 30))))
          << stack;
      EXPECT_TRUE(is_ragged(evicted.cache)) << stack;
    }
  }
}

TEST(RaggedHeads, ABudgetAboveTheRowsIsTheFullCacheToTheBit) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  const auto generated = test::random_tokens(20, model.hyper().n_vocab, 2);
  Sequence full = test::make_sequence(model);
  const auto expected = test::feed_all(engine, full, tokens);
  const auto decoded = test::decode_all(engine, full, generated);
  for (const std::string stack : kStacks) {
    Sequence sequence = test::make_sequence(model, stack + ":budget=170");
    EXPECT_TRUE(
        test::same_bits(expected, test::feed_all(engine, sequence, tokens, order_of(sequence))));
    EXPECT_TRUE(test::same_bits(decoded, test::decode_all(engine, sequence, generated)));
    EXPECT_EQ(sequence.cache.rows_evicted(), 0);
  }
}

TEST(RaggedHeads, ThreadsChangeNothing) {
  const Model model(test::write_tiny_model(several_heads()), {});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  const auto generated = test::random_tokens(20, model.hyper().n_vocab, 2);
  for (const std::string stack : kStacks) {
    std::vector<std::vector<int>> kept;
    for (const int n_threads : {1, 2, 3}) {
      Engine engine(model, {.n_threads = n_threads, .n_batch = 64});
      Sequence sequence = test::make_sequence(model, stack + ":budget=40");
      test::feed_all(engine, sequence, tokens, order_of(sequence));
      test::decode_all(engine, sequence, generated);
      if (kept.empty()) {
        kept = test::kept_positions(sequence.cache);
      }
      EXPECT_EQ(test::kept_positions(sequence.cache), kept) << stack;
    }
  }
}

TEST(RaggedHeads, FreeTheirMemory) {
  const Model model(
      test::write_tiny_model(
          {.n_layers = 16, .n_heads = 4, .n_kv_heads = 4, .head_dim = 64, .n_ctx_train = 16384}),
      {});
  Engine engine(model, {.n_threads = 1, .n_batch = 512});
  const auto prompt = test::random_tokens(4000, model.hyper().n_vocab);
  for (const char* policy : {"knorm+adakv:budget=256", "knorm+pyramid+adakv:budget=256"}) {
    Sequence sequence = test::make_sequence(model, policy, 8192, cache::RowType::kF16);
    const engine::Feed feed{.sequence = &sequence, .tokens = prompt};
    engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kNever, .progress = {}});
    const size_t rows_before = sequence.cache.now_bytes();
    const size_t committed_before = sequence.cache.committed_bytes();
    const size_t before = process_memory().rss_anon_bytes;
    const int32_t token = 1;
    test::decode_all(engine, sequence, {&token, 1});
    const size_t after = process_memory().rss_anon_bytes;
    const size_t freed = committed_before - sequence.cache.committed_bytes();
    EXPECT_EQ(sequence.cache.now_bytes(),
              256 * n_heads(sequence) * sequence.cache.shape().row_bytes());
    EXPECT_TRUE(is_ragged(sequence.cache));
    EXPECT_GT(freed, rows_before * 9 / 10);
    // Beside the rows: scores and pooled scores of all rows, 2 MiB, stay for the next time.
    EXPECT_NEAR(static_cast<double>(before - after), static_cast<double>(freed),
                test::is_sanitized() ? 16 << 20 : 3 << 20);
  }
}

TEST(RaggedHeads, ForkAndTrim) {
  const Model model(test::write_tiny_model(several_heads()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(200, model.hyper().n_vocab);
  const auto next = test::random_tokens(10, model.hyper().n_vocab, 2);
  for (const std::string stack : kStacks) {
    const std::string spec = stack + ":budget=40,slack=10";
    Sequence sequence = test::make_sequence(model, spec);
    const policy::Needs needs = sequence.policy.needs();
    if (needs.n_queries > 0 || needs.residual_similarity) {
      continue;  // such a one cannot go back, nor be cut from a cache that has not watched
    }
    test::feed_all(engine, sequence, prompt, order_of(sequence));
    Sequence full = test::make_sequence(model);
    test::feed_all(engine, full, prompt);
    // A copy of the full cache that is cut to the policy is what the policy had left.
    Sequence cut = engine.fork(full, {.policy = policy::Policy::parse(spec)});
    EXPECT_EQ(test::kept_positions(cut.cache), test::kept_positions(sequence.cache)) << stack;

    Sequence copy = engine::fork(sequence);
    const auto logits = test::decode_all(engine, sequence, next);
    EXPECT_TRUE(test::same_bits(logits, test::decode_all(engine, copy, next)));
    engine::trim(sequence, 200);  // the slack had room for all of them
    EXPECT_TRUE(test::same_bits(logits, test::decode_all(engine, sequence, next)));
    // Ragged under another allocator, then under uniform again.
    for (const char* other : {"knorm+pyramid:budget=20,n_recent=2", "knorm+adakv:budget=20",
                              "knorm+pool:budget=20,n_recent=2"}) {
      EXPECT_EQ(total(engine.fork(sequence, {.policy = policy::Policy::parse(other)}).cache),
                20 * n_heads(sequence))
          << stack << " to " << other;
    }
    EXPECT_LE(
        engine.fork(sequence, {.policy = policy::Policy::parse("knorm:budget=20")}).cache.longest(),
        20);
  }
}

TEST(RaggedHeads, LayersThatAreComparedCannotBeCutOneByOne) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "knorm+pool:budget=20");
  const auto prompt = test::random_tokens(50, model.hyper().n_vocab);
  EXPECT_THAT(
      test::error_of(ErrorCode::kInvalidArgument,
                     [&] { test::feed_all(engine, sequence, prompt, PrefillOrder::kLayerMajor); }),
      testing::HasSubstr("chunk-major"));
  test::feed_all(engine, sequence, prompt);
  EXPECT_EQ(sequence.positions_fed, 50);
}

}  // namespace
}  // namespace winnow
