// The engine is right: against plain ggml attention and libllama, for every way of cutting a prompt, and evicted =
// masked through the whole model.

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string_view>

#include "kernels/append.h"
#include "support/generate.h"
#include "support/ggml_attention.h"
#include "support/libllama.h"
#include "support/models.h"
#include "support/policies.h"
#include "support/random_rows.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using model::WeightType;

constexpr PrefillOrder kOrders[] = {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor};

size_t vocabulary_size(const Model& model) {
  return static_cast<size_t>(model.hyper().n_vocab);
}

// KL of the product's attention from plain ggml attention on the same weights.
double kl_of_product(const std::string& path, WeightType weights, int n_tokens) {
  const Model model(path, {.weights = {weights}, .n_threads = 2});
  const auto tokens = test::prose_tokens(model, n_tokens);
  Engine engine(model, {.n_threads = 2, .n_batch = 512});
  Sequence sequence = test::make_sequence(model);
  const auto ours = test::feed_all(engine, sequence, tokens);
  const auto reference = test::ggml_attention_logits(model, tokens, 512, 2);
  return test::mean_kl(reference, ours, vocabulary_size(model));
}

void expect_agreement(const std::string& path, int n_tokens, double most_f32 = 1e-8) {
  const double f32 = kl_of_product(path, WeightType::kF32, n_tokens);
  const double f16 = kl_of_product(path, WeightType::kF16, n_tokens);
  const double file = kl_of_product(path, WeightType::kFile, n_tokens);
  const Model model(path, {});
  const auto tokens = test::prose_tokens(model, n_tokens);
  const auto off = test::libllama_logits(path, tokens, {.flash_attention = false, .n_threads = 2});
  const auto on = test::libllama_logits(path, tokens, {.flash_attention = true, .n_threads = 2});
  const double noise = test::mean_kl(off, on, vocabulary_size(model));
  std::printf(
      "mean KL over %d tokens: f32 %.2e, f16 %.2e, file %.2e; libllama's flash attention %.2e\n",
      n_tokens, f32, f16, file, noise);
  EXPECT_LE(f32, most_f32);
  EXPECT_LE(f16, 1e-5);
  EXPECT_LE(file, 2 * noise);
}

TEST(Exactness, ProductAttentionAgreesWithPlainAttentionOnSmolLm2) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  expect_agreement(path, 400);
}

TEST(Exactness, ProductAttentionAgreesWithPlainAttentionOnGemma3) {
  WINNOW_FIND_MODEL(path, test::kGemma3);
  // Longer than its window of 512. ggml looks GELU up in a table by the argument rounded to f16, which turns differences
  // in the last bits into ones of f16 (4.4e-7 here; 8.8e-12 with a GELU computed in f32).
  expect_agreement(path, 560, 1e-6);
}

TEST(Exactness, ProductAttentionAgreesWithPlainAttentionOnQwen2) {
  WINNOW_FIND_MODEL(path, test::kQwen2);
  expect_agreement(path, 200);
}

// Prompt logits are the same bits for every batch size, order and number of threads.
void expect_same_bits_however_cut(const std::string& path, std::span<const int> batches,
                                  int n_tokens, WeightType weights, std::span<const int> threads) {
  const Model model(path, {.weights = {weights}, .n_threads = 2});
  const auto tokens = test::prose_tokens(model, n_tokens);
  std::vector<float> first;
  for (const int n_threads : threads) {
    for (const int n_batch : batches) {
      Engine engine(model, {.n_threads = n_threads, .n_batch = n_batch});
      for (const PrefillOrder order : kOrders) {
        Sequence sequence = test::make_sequence(model, "full", 8192, cache::RowType::kF16);
        const auto logits = test::feed_all(engine, sequence, tokens, order);
        if (first.empty()) {
          first = logits;
        }
        EXPECT_TRUE(test::same_bits(first, logits)) << "batch " << n_batch << ", " << n_threads
                                                    << " threads, " << prefill_order_name(order);
      }
    }
  }
}

TEST(Exactness, PromptLogitsDoNotDependOnHowThePromptIsCut) {
  constexpr int kThreads[] = {1, 2};
  for (const ggml_type type :
       {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    const std::string path = test::write_tiny_model({.head_dim = 64, .matrix_type = type});
    constexpr int kBatches[] = {3, 8, 64, 512, 700};  // 3: every chunk is padded
    expect_same_bits_however_cut(path, kBatches, 700, WeightType::kFile, kThreads);
  }
  const std::string path = test::write_tiny_model({.n_layers = 1, .n_ctx_train = 8192});
  constexpr int kBatches[] = {100,
                              4999};  // over the first change of block length, at position 4096
  expect_same_bits_however_cut(path, kBatches, 4999, WeightType::kFile, kThreads);
}

TEST(Exactness, PromptLogitsDoNotDependOnHowThePromptIsCutOnRealModels) {
  constexpr int kBatches[] = {8, 64, 512, 300};
  constexpr int kThreads[] = {1, 2};
  constexpr int kTwo[] = {2};
  WINNOW_FIND_MODEL(smol, test::kSmolLm2);
  expect_same_bits_however_cut(smol, kBatches, 300, WeightType::kFile, kThreads);
  expect_same_bits_however_cut(smol, kBatches, 300, WeightType::kBf16, kTwo);
  WINNOW_FIND_MODEL(qwen, test::kQwen2);
  expect_same_bits_however_cut(qwen, kBatches, 120, WeightType::kFile, kTwo);
  WINNOW_FIND_MODEL(gemma, test::kGemma3);
  constexpr int kTwoBatches[] = {128, 512};
  expect_same_bits_however_cut(gemma, kTwoBatches, 540, WeightType::kFile, kTwo);
}

TEST(Exactness, LayerMajorWithAOneShotPolicyReadsThePromptAsTheFullCacheDoes) {
  const auto expect_equal = [](const std::string& path, int n_tokens) {
    const Model model(path, {});
    const auto tokens = test::prose_tokens(model, n_tokens);
    Engine engine(model, {.n_threads = 2, .n_batch = 64});
    Sequence full = test::make_sequence(model);
    const auto expected = test::feed_all(engine, full, tokens);
    for (const std::string& policy : test::policies_by_layer(32, test::filter_shape(model))) {
      Sequence sequence = test::make_sequence(model, policy);
      EXPECT_TRUE(test::same_bits(
          expected, test::feed_all(engine, sequence, tokens, PrefillOrder::kLayerMajor)))
          << policy;
      const auto kept = test::kept_positions(sequence.cache);
      EXPECT_EQ(std::accumulate(kept.begin(), kept.end(), size_t{0},
                                [](size_t n, const auto& head) { return n + head.size(); }),
                kept.size() * 32);
      EXPECT_FALSE(sequence.evicted_during_prompt);
    }
  };
  expect_equal(test::write_tiny_model(), 300);
  WINNOW_FIND_MODEL(smol, test::kSmolLm2);
  expect_equal(smol, 200);
}

// Gives the rows at `slots` of a head the values of the rows that the same head of `from` holds.
void take_values(const cache::Cache& from, cache::Cache& to, int layer, int kv_head,
                 const std::vector<int>& slots) {
  const cache::HeadRows rows = from.rows(layer, kv_head);
  const auto dim = static_cast<size_t>(rows.head_dim);
  std::vector<float> values;
  for (int slot = 0; slot < rows.n; ++slot) {
    if (!rows.is_evicted(slot)) {
      const float* const value = reinterpret_cast<const float*>(rows.values) +
                                 static_cast<size_t>(slot) * dim;  // rows are f32
      values.insert(values.end(), value, value + dim);
    }
  }
  kernels::rewrite_values(to, layer, kv_head, slots, values);
}

// While one sequence evicts, the other hides what its policy would evict, and has the values that are merged: for every
// policy the logits are the same bits.
TEST(Exactness, EveryPolicyDecodesAsIfTheRowsItEvictedWereMasked) {
  for (const char* architecture : {"llama", "qwen2", "gemma3"}) {
    const bool has_window = std::string_view(architecture) == "gemma3";
    const Model model(test::write_tiny_model({.architecture = architecture,
                                              .n_layers = has_window ? 7 : 2,
                                              .swa_window = has_window ? 100 : 0}),
                      {});
    Engine engine(model, {.n_threads = 2, .n_batch = 64});
    const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
    const auto next = test::random_tokens(25, model.hyper().n_vocab, 2);
    for (const std::string& spec : test::all_policies(40, test::filter_shape(model))) {
      Sequence evicted = test::make_sequence(model, spec);
      test::feed_all(engine, evicted, tokens);
      const bool is_contiguous = evicted.policy.is_contiguous();
      Sequence masked = test::make_sequence(
          model, is_contiguous ? "streaming:budget=9999,positions=contiguous" : "full");
      test::feed_all(engine, masked, tokens);
      for (const int32_t token : next) {
        const auto kept = test::kept_positions(evicted.cache);
        for (size_t head = 0; head < kept.size(); ++head) {
          const int n_kv_heads = model.hyper().n_kv_heads;
          const int layer = static_cast<int>(head) / n_kv_heads;
          if (model.hyper().swa_window(layer) == 0) {  // slots are positions
            const int kv_head = static_cast<int>(head) % n_kv_heads;
            if (evicted.policy.merges()) {
              take_values(evicted.cache, masked.cache, layer, kv_head, kept[head]);
            }
            masked.cache.hide_others(layer, kv_head, kept[head]);
          }
        }
        ASSERT_TRUE(test::same_bits(test::decode_all(engine, evicted, {&token, 1}),
                                    test::decode_all(engine, masked, {&token, 1})))
            << architecture << " " << spec;
      }
    }
  }
}

// Two sequences with the same prompt: one loses rows, the other only has them hidden.
void expect_evicted_equals_masked(const std::string& path, int n_tokens) {
  const Model model(path, {});
  const auto tokens = test::prose_tokens(model, n_tokens + 60);
  const std::span<const int32_t> all(tokens);
  Engine engine(model, {.n_threads = 2, .n_batch = 128});
  Sequence evicted = test::make_sequence(model, "full", 8192, cache::RowType::kF16);
  Sequence masked = test::make_sequence(model, "full", 8192, cache::RowType::kF16);
  const auto prompt = all.first(static_cast<size_t>(n_tokens));
  test::feed_all(engine, evicted, prompt);
  test::feed_all(engine, masked, prompt);
  std::mt19937 random(7);
  for (int layer = 0; layer < model.hyper().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < model.hyper().n_kv_heads; ++kv_head) {
      const int n_cached = evicted.cache.n_cached(layer, kv_head);  // less in layers with a window
      const int n_keep = std::uniform_int_distribution<int>(1, n_cached)(random);
      const auto slots = test::random_slots(random, n_cached, n_keep);
      evicted.cache.keep(layer, kv_head, slots);
      masked.cache.hide_others(layer, kv_head, slots);
    }
  }
  const auto generated = all.subspan(prompt.size(), 10);
  EXPECT_TRUE(test::same_bits(test::decode_all(engine, evicted, generated),
                              test::decode_all(engine, masked, generated)));
  const auto more = all.subspan(prompt.size() + 10, 50);
  EXPECT_TRUE(
      test::same_bits(test::feed_all(engine, evicted, more), test::feed_all(engine, masked, more)));
}

TEST(Exactness, EvictedEqualsMaskedThroughTheWholeModel) {
  expect_evicted_equals_masked(test::write_tiny_model(), 700);
  expect_evicted_equals_masked(test::write_tiny_model({.architecture = "qwen2", .head_dim = 20}),
                               700);
  expect_evicted_equals_masked(
      test::write_tiny_model(
          {.architecture = "gemma3", .n_layers = 7, .head_dim = 32, .swa_window = 100}),
      700);
  WINNOW_FIND_MODEL(smol, test::kSmolLm2);
  expect_evicted_equals_masked(smol, 300);
  WINNOW_FIND_MODEL(qwen, test::kQwen2);
  expect_evicted_equals_masked(qwen, 100);
}

TEST(Exactness, ABudgetAboveTheRowsIsTheFullCacheToTheBit) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  const auto generated = test::random_tokens(20, model.hyper().n_vocab, 2);
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence full = test::make_sequence(model);
  const auto prompt_logits = test::feed_all(engine, full, tokens);
  const auto decode_logits = test::decode_all(engine, full, generated);
  for (const std::string& policy : test::all_policies(220, test::filter_shape(model))) {
    for (const PrefillOrder order : kOrders) {
      Sequence sequence = test::make_sequence(model, policy);
      if (order == PrefillOrder::kLayerMajor && sequence.policy.needs_all_layers()) {
        continue;
      }
      EXPECT_TRUE(test::same_bits(prompt_logits, test::feed_all(engine, sequence, tokens, order)));
      EXPECT_TRUE(test::same_bits(decode_logits, test::decode_all(engine, sequence, generated)));
      EXPECT_EQ(sequence.cache.rows_evicted(), 0);
    }
  }
}

TEST(Exactness, DecodeGivesTheSameBitsForAnyNumberOfThreads) {
  const Model model(test::write_tiny_model({.head_dim = 64}), {});
  const auto tokens = test::random_tokens(900, model.hyper().n_vocab);
  const auto generated = test::random_tokens(30, model.hyper().n_vocab, 2);
  std::vector<float> first;
  for (const int n_threads : {1, 2, 3}) {
    Engine engine(model, {.n_threads = n_threads, .n_batch = 512});
    Sequence sequence = test::make_sequence(model, "knorm:budget=300", 8192, cache::RowType::kF16);
    test::feed_all(engine, sequence, tokens, PrefillOrder::kLayerMajor);
    const auto logits = test::decode_all(engine, sequence, generated);
    if (first.empty()) {
      first = logits;
    }
    EXPECT_TRUE(test::same_bits(first, logits)) << n_threads;
  }
}

TEST(Exactness, BothOrdersKeepTheSameRowsWherePromptsAreCutOnce) {
  const Model model(test::write_tiny_model({.n_layers = 3}), {});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto next = test::random_tokens(30, model.hyper().n_vocab, 2);
  for (const std::string& policy : test::policies_by_layer(30, test::filter_shape(model))) {
    Sequence by_chunk = test::make_sequence(model, policy);
    test::feed_all(engine, by_chunk, tokens, PrefillOrder::kChunkMajor);
    const auto kept = test::kept_positions(by_chunk.cache);
    const auto logits = test::decode_all(engine, by_chunk, next);
    for (const int n_batch : {17, 64, 200}) {
      for (const int n_threads : {1, 3}) {
        Engine other(model, {.n_threads = n_threads, .n_batch = n_batch});
        Sequence by_layer = test::make_sequence(model, policy);
        test::feed_all(other, by_layer, tokens, PrefillOrder::kLayerMajor);
        EXPECT_EQ(test::kept_positions(by_layer.cache), kept) << policy << " " << n_batch;
        EXPECT_TRUE(test::same_bits(test::decode_all(other, by_layer, next), logits)) << policy;
      }
    }
  }
}

TEST(Exactness, NeighboursInABatchChangeNothing) {
  const auto expect_alone_equals_together = [](const std::string& path, WeightType weights,
                                               int n_long) {
    const Model model(path, {.weights = {weights}, .n_threads = 2});
    const auto a = test::random_tokens(n_long, model.hyper().n_vocab, 3);
    const auto b = test::random_tokens(n_long / 3, model.hyper().n_vocab, 4);
    const char* const policy = "knorm:budget=40";
    for (const PrefillOrder order : kOrders) {
      Engine engine(model, {.n_threads = 2, .n_batch = 64});
      Sequence alone_a = test::make_sequence(model, policy);
      Sequence alone_b = test::make_sequence(model, policy);
      const auto logits_a = test::feed_all(engine, alone_a, a, order);
      const auto logits_b = test::feed_all(engine, alone_b, b, order);
      Sequence together_a = test::make_sequence(model, policy);
      Sequence together_b = test::make_sequence(model, policy);
      const engine::Feed feeds[] = {{&together_a, a, engine::WantedLogits::kAll},
                                    {&together_b, b, engine::WantedLogits::kAll}};
      const auto logits = engine.feed(feeds, {.order = order, .progress = {}});
      EXPECT_TRUE(test::same_bits(logits[0], logits_a));
      EXPECT_TRUE(test::same_bits(logits[1], logits_b));
      EXPECT_EQ(test::kept_positions(together_a.cache), test::kept_positions(alone_a.cache));
      EXPECT_EQ(test::kept_positions(together_b.cache), test::kept_positions(alone_b.cache));

      // Decoding together: two rows are another class of matrix multiply than one, except for types without classes,
      // so here the weights decide what must be equal.
      const auto next = test::random_tokens(12, model.hyper().n_vocab, 5);
      for (const int32_t token : next) {
        const engine::DecodeInput both[] = {{&together_a, token}, {&together_b, token}};
        const engine::DecodeInput one_a{&alone_a, token};
        const engine::DecodeInput one_b{&alone_b, token};
        const auto rows = engine.decode(both);
        auto row_a = engine.decode({&one_a, 1});
        const auto row_b = engine.decode({&one_b, 1});
        row_a.insert(row_a.end(), row_b.begin(), row_b.end());
        if (weights == WeightType::kFile) {
          EXPECT_TRUE(test::same_bits(rows, row_a));
        }
      }
      EXPECT_EQ(test::kept_positions(together_a.cache), test::kept_positions(alone_a.cache));
      EXPECT_EQ(test::kept_positions(together_b.cache), test::kept_positions(alone_b.cache));
    }
  };
  expect_alone_equals_together(test::write_tiny_model({.matrix_type = GGML_TYPE_Q8_0}),
                               WeightType::kFile, 200);
  WINNOW_FIND_MODEL(smol, test::kSmolLm2);
  expect_alone_equals_together(smol, WeightType::kFile, 90);
}

TEST(Exactness, NeighboursChangeNothingWhereEveryChunkIsCut) {
  const Model model(test::write_tiny_model(), {});
  const auto a = test::random_tokens(170, model.hyper().n_vocab, 3);
  const auto b = test::random_tokens(130, model.hyper().n_vocab, 4);
  Engine engine(model, {.n_threads = 1, .n_batch = 50});
  const engine::FeedOptions per_chunk{.eviction = engine::PromptEviction::kPerChunk,
                                      .progress = {}};
  Sequence alone = test::make_sequence(model, "knorm:budget=30");
  const engine::Feed one{&alone, b};
  const auto expected = engine.feed({&one, 1}, per_chunk);
  Sequence together_a = test::make_sequence(model, "knorm:budget=30");
  Sequence together_b = test::make_sequence(model, "knorm:budget=30");
  const engine::Feed both[] = {{&together_a, a}, {&together_b, b}};
  const auto logits = engine.feed(both, per_chunk);
  EXPECT_TRUE(test::same_bits(logits[1], expected[0]));
  EXPECT_EQ(test::kept_positions(together_b.cache), test::kept_positions(alone.cache));
  EXPECT_EQ(together_b.evictions.count, alone.evictions.count);
}

}  // namespace
}  // namespace winnow
