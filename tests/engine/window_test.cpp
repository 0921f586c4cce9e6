// Layers with a sliding window: what leaves the window goes, policies cut the other layers only, and the plan knows both.

#include <gtest/gtest.h>

#include "base/error.h"
#include "engine/run.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::EvictWhen;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;

constexpr PrefillOrder kOrders[] = {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor};
constexpr int kWindow = 40;
const int kMostKept = kWindow + cache::CacheShape::window_slack(kWindow) - 1;

// Layer 5 sees everything, the six others a window.
std::string write_windowed_model() {
  return test::write_tiny_model({.architecture = "gemma3",
                                 .n_layers = 7,
                                 .head_dim = 32,
                                 .n_ctx_train = 8192,
                                 .swa_window = kWindow});
}

int n_rows(const Sequence& sequence, int layer) {
  return sequence.cache.n_cached(layer, sequence.cache.shape().n_kv_heads - 1);
}

TEST(Window, PromptLogitsDoNotDependOnHowThePromptIsCut) {
  const Model model(write_windowed_model(), {});
  const auto tokens = test::random_tokens(400, model.hyper().n_vocab);
  std::vector<float> first;
  for (const int n_batch : {8, 37, 64, 400}) {
    for (const PrefillOrder order : kOrders) {
      Engine engine(model, {.n_threads = n_batch == 64 ? 2 : 1, .n_batch = n_batch});
      Sequence sequence = test::make_sequence(model);
      const auto logits = test::feed_all(engine, sequence, tokens, order);
      if (first.empty()) {
        first = logits;
      }
      EXPECT_TRUE(test::same_bits(first, logits)) << n_batch << " " << prefill_order_name(order);
    }
  }
}

TEST(Window, RefusesChunksThatWouldNotFitBesideTheWindow) {
  const Model model(write_windowed_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(300, model.hyper().n_vocab);
  for (const int max_rows : {kWindow + 63, kWindow + 64}) {
    Sequence sequence = test::make_sequence(model, "knorm:budget=8", max_rows);
    const engine::Feed one{.sequence = &sequence, .tokens = tokens};
    const engine::FeedOptions per_chunk{.eviction = engine::PromptEviction::kPerChunk,
                                        .progress = {}};
    if (max_rows < kWindow + 64) {
      EXPECT_THROW(engine.feed({&one, 1}, per_chunk), Error);
    } else {
      EXPECT_NO_THROW(engine.feed({&one, 1}, per_chunk));
    }
  }
}

TEST(Window, RowsThatNoQuerySeesGoAfterEveryStep) {
  const Model model(write_windowed_model(), {});
  for (const PrefillOrder order : kOrders) {
    Engine engine(model, {.n_threads = 1, .n_batch = 64});
    Sequence sequence = test::make_sequence(model, "full", 500);
    test::feed_all(engine, sequence, test::random_tokens(300, model.hyper().n_vocab), order);
    EXPECT_EQ(n_rows(sequence, 5), 300);
    EXPECT_EQ(n_rows(sequence, 0), kWindow);
    EXPECT_EQ(n_rows(sequence, 6), kWindow);
    EXPECT_EQ(sequence.cache.rows(0, 0).positions[0], 300 - kWindow);
    int most = 0;
    for (const int32_t token : test::random_tokens(50, model.hyper().n_vocab, 2)) {
      test::decode_all(engine, sequence, {&token, 1});
      most = std::max(most, n_rows(sequence, 0));
    }
    EXPECT_EQ(most, kMostKept);
    EXPECT_EQ(n_rows(sequence, 5), 350);
    EXPECT_EQ(sequence.cache.longest(), 350);
    EXPECT_EQ(sequence.cache.rows_evicted(), 0);  // by no policy
    EXPECT_LE(sequence.cache.now_bytes(),
              sequence.cache.shape().full_bytes(350 + kMostKept - kWindow + 1));
  }
}

TEST(Window, NeighboursInABatchChangeNothing) {
  const Model model(test::write_tiny_model({.architecture = "gemma3",
                                            .n_layers = 7,
                                            .head_dim = 32,
                                            .swa_window = kWindow,
                                            .matrix_type = GGML_TYPE_Q8_0}),
                    {});
  const auto a = test::random_tokens(200, model.hyper().n_vocab, 3);
  const auto b = test::random_tokens(70, model.hyper().n_vocab, 4);
  for (const PrefillOrder order : kOrders) {
    Engine engine(model, {.n_threads = 1, .n_batch = 64});
    Sequence alone_a = test::make_sequence(model, "knorm:budget=30");
    Sequence alone_b = test::make_sequence(model, "knorm:budget=30");
    Sequence both_a = test::make_sequence(model, "knorm:budget=30");
    Sequence both_b = test::make_sequence(model, "knorm:budget=30");
    const engine::Feed feeds[] = {{&both_a, a, engine::WantedLogits::kAll},
                                  {&both_b, b, engine::WantedLogits::kAll}};
    const auto logits = engine.feed(feeds, {.order = order, .progress = {}});
    EXPECT_TRUE(test::same_bits(logits[0], test::feed_all(engine, alone_a, a, order)));
    EXPECT_TRUE(test::same_bits(logits[1], test::feed_all(engine, alone_b, b, order)));
    for (const int32_t token : test::random_tokens(20, model.hyper().n_vocab, 5)) {
      const engine::DecodeInput both[] = {{&both_a, token}, {&both_b, token}};
      auto expected = test::decode_all(engine, alone_a, {&token, 1});
      const auto of_b = test::decode_all(engine, alone_b, {&token, 1});
      expected.insert(expected.end(), of_b.begin(), of_b.end());
      EXPECT_TRUE(test::same_bits(engine.decode(both), expected));
    }
  }
}

// What goes makes room for what comes.
TEST(Window, APromptMayBeLongerThanAWindowedHeadHasRoom) {
  const Model model(test::write_tiny_model({.architecture = "gemma3",
                                            .n_layers = 2,  // both with a window
                                            .head_dim = 32,
                                            .swa_window = kWindow}),
                    {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence small = test::make_sequence(model, "full", kMostKept + 64);
  Sequence large = test::make_sequence(model, "full", 1000);
  const auto tokens = test::random_tokens(500, model.hyper().n_vocab);
  EXPECT_TRUE(test::same_bits(test::feed_all(engine, small, tokens),
                              test::feed_all(engine, large, tokens)));
}

TEST(Window, PoliciesCutTheOtherLayers) {
  const Model model(write_windowed_model(), {});
  const auto tokens = test::random_tokens(300, model.hyper().n_vocab);
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence full = test::make_sequence(model);
  const auto expected = test::feed_all(engine, full, tokens);
  for (const char* policy : {"knorm:budget=20", "streaming:budget=20", "knorm:budget=100"}) {
    Sequence sequence = test::make_sequence(model, policy);
    EXPECT_TRUE(test::same_bits(
        expected, test::feed_all(engine, sequence, tokens, PrefillOrder::kLayerMajor)));
    const int budget = sequence.policy.budget_rows();
    EXPECT_EQ(n_rows(sequence, 5), budget);
    EXPECT_EQ(n_rows(sequence, 0), kWindow);
    EXPECT_EQ(sequence.cache.rows_evicted(), (300 - budget) * model.hyper().n_kv_heads);
    test::decode_all(engine, sequence, test::random_tokens(30, model.hyper().n_vocab, 2));
    EXPECT_EQ(n_rows(sequence, 5), budget);
    EXPECT_LE(n_rows(sequence, 0), kMostKept);
  }
}

TEST(Window, ABudgetInBytesIsOneOfTheOtherLayers) {
  const Model model(write_windowed_model(), {});
  const auto policy = policy::Policy::parse("knorm:budget=1MiB");
  const auto shape =
      engine::cache_shape(model.hyper(), cache::RowType::kF16, cache::RowType::kF16, policy, 0);
  const auto context = engine::budget_context(
      std::vector<engine::ReadPrompt>{{.document_end = 9, .end = 9}}, policy, shape);
  EXPECT_EQ(context.n_heads, model.hyper().n_kv_heads);
}

// The peak that the plan states is the one that comes.
TEST(Window, ThePlanIsWhatTheRunTakes) {
  Model model(write_windowed_model(), {});
  engine::PromptTokens prompt;
  prompt.document = test::random_tokens(700, model.hyper().n_vocab);
  prompt.question = test::random_tokens(30, model.hyper().n_vocab, 2);
  for (const char* policy : {"full", "knorm:budget=64", "knorm:budget=10%,slack=9"}) {
    for (const EvictWhen evict :
         {EvictWhen::kAfterPrompt, EvictWhen::kBeforeQuestion, EvictWhen::kPerChunk}) {
      for (const PrefillOrder order : kOrders) {
        if (evict == EvictWhen::kPerChunk && order == PrefillOrder::kLayerMajor) {
          continue;
        }
        SCOPED_TRACE(std::string(policy) + " " + evict_when_name(evict) + " " +
                     prefill_order_name(order));
        engine::RunOptions options;
        options.generate.n_predict = 90;
        options.generate.ignore_eos = true;
        options.session.evict = evict;
        options.session.order = order;
        options.session.engine = {.n_threads = 1, .n_batch = 64};
        engine::Run run(model, policy::Policy::parse(policy), prompt, options);
        const size_t planned = run.plan().kv_peak_bytes;
        run.run({});
        const cache::Cache& cache = run.session().sequence()->cache;
        EXPECT_EQ(planned, cache.peak_bytes());
        EXPECT_EQ(run.plan().kv_full_bytes, cache.shape().full_bytes(730 + 89));
      }
    }
  }
}

}  // namespace
}  // namespace winnow
