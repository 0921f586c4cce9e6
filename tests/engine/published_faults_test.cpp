// What other implementations of these methods got wrong, tried with every method (docs/decisions/faults.md).

#include <gtest/gtest.h>

#include <algorithm>

#include "support/generate.h"
#include "support/policies.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::Sequence;
using model::Model;

constexpr int kBudget = 40;
constexpr int kSinks = 4;

int total_rows(const cache::Cache& cache) {
  int n = 0;
  for (const auto& head : test::kept_positions(cache)) {
    n += static_cast<int>(head.size());
  }
  return n;
}

int total_heads(const Model& model) {
  return model.hyper().n_layers * model.hyper().n_kv_heads;
}

// Budgets held after prompts only; positions counted from what was kept.
TEST(PublishedFaults, DecodingHoldsTheBudgetAndTruePositionsUnderEveryMethod) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(100, model.hyper().n_vocab);
  for (const std::string& policy : test::all_policies(kBudget, test::filter_shape(model))) {
    SCOPED_TRACE(policy);
    Sequence sequence = test::make_sequence(model, policy);
    test::feed_all(engine, sequence, prompt);
    const int capacity = kBudget + sequence.policy.slack();
    ASSERT_LE(total_rows(sequence.cache), kBudget * total_heads(model));
    int pos = 100;
    for (const int32_t token : test::random_tokens(100, model.hyper().n_vocab, 2)) {
      test::decode_all(engine, sequence, {&token, 1});
      ASSERT_LE(total_rows(sequence.cache), capacity * total_heads(model));
      for (const auto& head : test::kept_positions(sequence.cache)) {
        ASSERT_EQ(head.back(), pos);  // the default protects a recent window
      }
      ++pos;
    }
  }
}

// Each chunk added a budget of rows, and began with sinks of its own.
TEST(PublishedFaults, ChunksAreCutToOneBudgetWithTheFirstSinksUnderEveryMethod) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 32});
  const auto tokens = test::random_tokens(300, model.hyper().n_vocab);
  for (const std::string& policy : test::all_policies(kBudget, test::filter_shape(model))) {
    SCOPED_TRACE(policy);
    Sequence sequence = test::make_sequence(model, policy);
    const engine::Feed feed{.sequence = &sequence, .tokens = tokens};
    engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kPerChunk, .progress = {}});
    EXPECT_EQ(total_rows(sequence.cache), kBudget * total_heads(model));
    for (const auto& head : test::kept_positions(sequence.cache)) {
      ASSERT_GE(std::ssize(head), kSinks);
      for (int sink = 0; sink < kSinks; ++sink) {
        EXPECT_EQ(head[static_cast<size_t>(sink)], sink);
      }
    }
  }
}

// Rows went before the prompt attended to them, and a mask that was aligned to the end hid most of the others. Legacy order
// does it again: it is far from the full cache, and the less so the smaller the chunks are. The right order reads a prompt
// with the full cache's bits.
TEST(PublishedFaults, EvictionBeforeAttentionChangesThePromptAndSmallChunksHideIt) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  const auto read = [&](const char* policy, int n_batch, engine::PrefillOrder order,
                        engine::PromptEviction eviction) {
    Engine engine(model, {.n_threads = 1, .n_batch = n_batch});
    Sequence sequence = test::make_sequence(model, policy);
    const engine::Feed feed{
        .sequence = &sequence, .tokens = tokens, .logits = engine::WantedLogits::kAll};
    return std::move(
        engine.feed({&feed, 1}, {.order = order, .eviction = eviction, .progress = {}})[0]);
  };
  using engine::PrefillOrder;
  using engine::PromptEviction;
  const auto full = read("full", 200, PrefillOrder::kChunkMajor, PromptEviction::kNever);
  const auto divergence = [&](const char* policy, int n_batch) {
    const auto logits =
        read(policy, n_batch, PrefillOrder::kChunkMajor, PromptEviction::kLegacyOrder);
    return test::mean_kl(full, logits, static_cast<size_t>(model.hyper().n_vocab));
  };
  for (const char* policy :
       {"knorm:budget=40", "keydiff:budget=40", "lagkv:budget=40,lag=8", "random:budget=40"}) {
    SCOPED_TRACE(policy);
    const auto right = read(policy, 200, PrefillOrder::kLayerMajor, PromptEviction::kAfter);
    EXPECT_TRUE(test::same_bits(right, full));
    const double at_once = divergence(policy, 200);
    const double in_two = divergence(policy, 100);
    const double in_many = divergence(policy, 10);
    EXPECT_GT(at_once, in_two);
    EXPECT_GT(in_two, 1.5 * in_many);
    EXPECT_GT(in_many, 0);
  }
}

// Several tokens at a full cache were scored otherwise than one after the other.
TEST(PublishedFaults, APromptAtAFullCacheIsReadAlikeHoweverItIsCutUnderEveryMethod) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  const auto next = test::random_tokens(30, model.hyper().n_vocab, 2);
  for (const std::string& policy : test::all_policies(kBudget, test::filter_shape(model))) {
    SCOPED_TRACE(policy);
    Engine whole_engine(model, {.n_threads = 1, .n_batch = 64});
    Sequence whole = test::make_sequence(model, policy);
    test::feed_all(whole_engine, whole, tokens);
    const auto logits = test::feed_all(whole_engine, whole, next);
    for (const int n_batch : {2, 7}) {
      Engine engine(model, {.n_threads = 1, .n_batch = n_batch});
      Sequence cut = test::make_sequence(model, policy);
      test::feed_all(engine, cut, tokens);
      EXPECT_TRUE(test::same_bits(test::feed_all(engine, cut, next), logits)) << n_batch;
      EXPECT_EQ(test::kept_positions(cut.cache), test::kept_positions(whole.cache)) << n_batch;
    }
  }
}

// Rows that came first had received most, and no later one ever got their place. Sums do that by themselves; means over the
// queries and sums that fade do not.
TEST(PublishedFaults, RowsOfTheAnswerTakePlacesOfThePromptUnderH2oWithMeansOrDecay) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(100, model.hyper().n_vocab);
  const auto answer = test::random_tokens(200, model.hyper().n_vocab, 2);
  for (const char* policy :
       {"h2o:budget=40,n_recent=4,observed=true", "h2o:budget=40,n_recent=4,decay=0.9"}) {
    SCOPED_TRACE(policy);
    Sequence sequence = test::make_sequence(model, policy);
    test::feed_all(engine, sequence, prompt);
    test::decode_all(engine, sequence, answer);
    for (const auto& head : test::kept_positions(sequence.cache)) {
      const auto n_of_answer =
          std::ranges::count_if(head, [](int pos) { return pos >= 100 && pos < 300 - 4; });
      EXPECT_GT(n_of_answer, 0);
    }
  }
}

}  // namespace
}  // namespace winnow
