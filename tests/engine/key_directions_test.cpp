// qfilters@keysvd through the engine: when its directions are found, from which keys, and what follows a sequence around.

#include "policy/key_directions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/error.h"
#include "engine/session.h"
#include "engine/session_file.h"
#include "support/filters.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::Sequence;
using model::Model;
using testing::HasSubstr;

constexpr int kBudget = 40;

std::string spec(const std::string& options = "") {
  return "qfilters@keysvd:budget=" + std::to_string(kBudget) + options;
}

Sequence fed(const Model& model, const std::string& policy, int n_tokens, int n_batch,
             bool is_cut_per_chunk = true) {
  Engine engine(model, {.n_threads = 2, .n_batch = n_batch});
  Sequence sequence = test::make_sequence(model, policy);
  const auto tokens = test::random_tokens(n_tokens, model.hyper().n_vocab);
  const engine::Feed feed{.sequence = &sequence, .tokens = tokens};
  engine.feed({&feed, 1}, {.eviction = is_cut_per_chunk ? engine::PromptEviction::kPerChunk
                                                        : engine::PromptEviction::kAfter,
                           .progress = {}});
  return sequence;
}

double cosine(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0) /
         std::sqrt(std::inner_product(a.begin(), a.end(), a.begin(), 0.0) *
                   std::inner_product(b.begin(), b.end(), b.begin(), 0.0));
}

TEST(KeyDirectionsInEngine, NothingIsEvictedBeforeThereAreEnoughKeys) {
  const Model model(test::write_tiny_model(), {});
  for (const bool is_cut_per_chunk : {false, true}) {
    Sequence sequence = fed(model, spec(), 100, 16, is_cut_per_chunk);
    EXPECT_EQ(sequence.cache.n_cached(0, 0), 100);
    EXPECT_FALSE(sequence.key_directions.is_frozen(0));
    Engine engine(model, {});
    test::decode_all(engine, sequence, test::random_tokens(60, model.hyper().n_vocab, 2));
    EXPECT_TRUE(sequence.key_directions.is_frozen(1));
    EXPECT_LE(sequence.cache.n_cached(0, 0), std::max(kBudget + sequence.policy.slack(), 128));
    EXPECT_EQ(sequence.positions_fed, 160);
  }
  EXPECT_EQ(fed(model, spec(), 128, 16).cache.n_cached(0, 0), kBudget);
}

// Calibrated filters hold the budget from the first token on, while keys are still being collected for a direction.
TEST(KeyDirectionsInEngine, CalibratedFiltersNeedNoKeysFirst) {
  const Model model(test::write_tiny_model(), {});
  const std::string calibrated =
      "qfilters:budget=" + std::to_string(kBudget) +
      ",filters=" + test::write_filters(test::random_filters(test::filter_shape(model)));
  Engine engine(model, {.n_threads = 1, .n_batch = 16});
  Sequence with_filters = test::make_sequence(model, calibrated);
  Sequence without = test::make_sequence(model, spec());
  int n_fed = 0;
  for (const int32_t token : test::random_tokens(80, model.hyper().n_vocab)) {
    test::decode_all(engine, with_filters, {&token, 1});
    test::decode_all(engine, without, {&token, 1});
    ++n_fed;
    ASSERT_EQ(with_filters.cache.n_cached(0, 0), std::min(n_fed, kBudget));
    ASSERT_EQ(without.cache.n_cached(0, 0), n_fed);
  }
  for (const int n_batch : {512, 64, 16, 7}) {
    EXPECT_EQ(fed(model, calibrated, 80, n_batch).cache.n_cached(1, 1), kBudget);
    EXPECT_EQ(fed(model, spec(), 80, n_batch).cache.n_cached(1, 1), 80);
  }
}

// Rows that are not cut yet take room while an answer grows: what is planned, and reserved, is what is held.
TEST(KeyDirectionsInEngine, APlanKnowsThatNothingGoesBeforeThereAreEnoughKeys) {
  const Model model(test::write_tiny_model(), {});
  for (const auto evict : {engine::EvictWhen::kAfterPrompt, engine::EvictWhen::kPerChunk}) {
    engine::Session session(
        model, policy::Policy::parse(spec()),
        {.evict = evict, .order = {}, .engine = {.n_threads = 1, .n_batch = 16}});
    const engine::PromptTokens prompt{.document = test::random_tokens(100, model.hyper().n_vocab)};
    const engine::Plan plan = session.plan(prompt, 60);
    EXPECT_GE(plan.max_rows, 129) << "128 keys, and the one that is one too many";
    EXPECT_EQ(plan.kv_prompt_bytes, session.plan(prompt, 1).kv_full_bytes) << "all of it";
    session.reserve(plan.max_rows);
    session.read(prompt, {});
    const auto answer =
        session.generate({.n_predict = 60, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
    EXPECT_EQ(answer.n_generated, 60);
    EXPECT_LT(session.sequence()->cache.n_cached(0, 0), 128) << "cut once there were enough";
  }
}

// The first keys are what they are, however they came; all keys of the block that brings the last one are not.
TEST(KeyDirectionsInEngine, TheFirstKeysGiveTheSameDirectionForAnyChunks) {
  const Model model(test::write_tiny_model(), {});
  const Sequence whole = fed(model, spec(), 400, 512);
  const Sequence block = fed(model, spec(",calib=block"), 400, 512);
  for (const int n_batch : {256, 64, 16}) {
    const Sequence chunked = fed(model, spec(), 400, n_batch);
    const Sequence by_block = fed(model, spec(",calib=block"), 400, n_batch);
    for (const Sequence* const sequence : {&chunked, &by_block}) {
      EXPECT_EQ(sequence->cache.n_cached(0, 0), kBudget);
      EXPECT_EQ(sequence->positions_fed, 400);
    }
    for (int layer = 0; layer < 2; ++layer) {
      const auto direction = chunked.key_directions.direction(layer, 1);
      const auto other = by_block.key_directions.direction(layer, 1);
      // The first layer's keys do not depend on what was evicted, and nothing was before there were enough.
      EXPECT_GT(cosine(direction, whole.key_directions.direction(layer, 1)), 1 - 1e-6);
      EXPECT_NEAR(std::inner_product(other.begin(), other.end(), other.begin(), 0.0), 1, 1e-6);
      if (n_batch < 256) {
        EXPECT_LT(cosine(other, block.key_directions.direction(layer, 1)), 0.999);
      }
    }
  }
}

TEST(KeyDirectionsInEngine, ForksFindTheirOwnWhereAllRowsAreThere) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  Sequence full = test::make_sequence(model);
  test::feed_all(engine, full, tokens);
  Sequence own = test::make_sequence(model, spec());
  test::feed_all(engine, own, tokens);
  Sequence fork = engine.fork(full, {.policy = policy::Policy::parse(spec())});
  EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(own.cache));
  EXPECT_EQ(fork.key_directions.directions().size(), own.key_directions.directions().size());
  EXPECT_TRUE(test::same_bits(fork.key_directions.directions(), own.key_directions.directions()));
  Sequence cut = test::make_sequence(model, "knorm:budget=50");
  test::feed_all(engine, cut, tokens);
  EXPECT_THROW(engine.fork(cut, {.policy = policy::Policy::parse(spec())}), Error);
}

TEST(KeyDirectionsInEngine, TrimmingBeforeTheFirstKeysForgetsThem) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "qfilters@keysvd:budget=300");
  test::feed_all(engine, sequence, test::random_tokens(200, model.hyper().n_vocab));
  ASSERT_TRUE(sequence.key_directions.is_frozen(0));
  engine::trim(sequence, 150);
  EXPECT_TRUE(sequence.key_directions.is_frozen(0));
  engine::trim(sequence, 100);
  EXPECT_TRUE(sequence.key_directions.is_empty());
  test::feed_all(engine, sequence, test::random_tokens(60, model.hyper().n_vocab, 5));
  EXPECT_TRUE(sequence.key_directions.is_frozen(0));
}

TEST(KeyDirectionsInEngine, AreNotFoundOfTurnedKeys) {
  EXPECT_THROW(policy::Policy::parse(spec(",positions=contiguous")), Error);
}

}  // namespace
}  // namespace winnow
