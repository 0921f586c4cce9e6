// h2o through the engine: what its column mass adds up to, and that it stays with its rows.

#include <gtest/gtest.h>

#include <numeric>

#include "engine/session.h"
#include "kernels/attend.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::Sequence;
using model::Model;

// [n_layers * n_kv_heads, n_rows], in weights.
std::vector<std::vector<double>> mass_of(Sequence& sequence) {
  const cache::CacheShape& shape = sequence.cache.shape();
  std::vector<std::vector<double>> all;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < shape.n_kv_heads; ++kv_head) {
      std::vector<double>& mass = all.emplace_back();
      for (int slot = 0; slot < sequence.cache.rows(layer, kv_head).n; ++slot) {
        mass.push_back(static_cast<double>(sequence.cache.mass(layer, kv_head)[slot]) /
                       kernels::kMassScale);
      }
    }
  }
  return all;
}

void expect_sums(Sequence& sequence, double expected) {
  for (const std::vector<double>& mass : mass_of(sequence)) {
    EXPECT_NEAR(std::accumulate(mass.begin(), mass.end(), 0.0), expected, 1e-3);
  }
}

// Every query pays 1 in all to the rows that it sees.
TEST(Mass, GrowsByOneForEachQuery) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "h2o:budget=1000");
  test::feed_all(engine, sequence, test::random_tokens(150, model.hyper().n_vocab));
  const int group = model.hyper().n_heads / model.hyper().n_kv_heads;
  expect_sums(sequence, 150.0 * group);
  test::decode_all(engine, sequence, test::random_tokens(20, model.hyper().n_vocab, 2));
  expect_sums(sequence, 170.0 * group);
}

// Three tokens leave an eighth of what a prompt paid, and 1 + 1/2 + 1/4 of their own.
TEST(Mass, DecaysWithEachGeneratedToken) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "h2o:budget=1000,decay=0.5");
  test::feed_all(engine, sequence, test::random_tokens(150, model.hyper().n_vocab));
  test::decode_all(engine, sequence, test::random_tokens(3, model.hyper().n_vocab, 2));
  expect_sums(sequence, (150.0 / 8 + 1.75) * model.hyper().n_heads / model.hyper().n_kv_heads);
}

TEST(Mass, StaysWithItsRowWhenOthersGo) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  Sequence whole = test::make_sequence(model, "h2o:budget=1000");
  Sequence cut = test::make_sequence(model, "h2o:budget=40");
  test::feed_all(engine, whole, tokens);
  test::feed_all(engine, cut, tokens);
  const auto all = mass_of(whole);
  const auto kept = mass_of(cut);
  const auto positions = test::kept_positions(cut.cache);
  for (size_t head = 0; head < kept.size(); ++head) {
    ASSERT_EQ(positions[head].size(), 40U);
    for (size_t slot = 0; slot < 40; ++slot) {
      EXPECT_EQ(kept[head][slot], all[head][static_cast<size_t>(positions[head][slot])]);
    }
  }
}

// Layers that are cut already and layers that are being read take the scratch that the plan says.
TEST(Mass, TheScratchOfItsSumsIsPlanned) {
  const Model model(test::write_tiny_model({.n_layers = 3}), {});
  for (const int n_tokens : {70, 150, 300, 1200}) {
    for (const engine::EvictWhen evict :
         {engine::EvictWhen::kAfterPrompt, engine::EvictWhen::kPerChunk}) {
      for (const int n_predict : {1, 20}) {
        engine::SessionOptions options;
        options.evict = evict;
        options.engine = {.n_threads = 2, .n_batch = 64};
        engine::Session session(model, policy::Policy::parse("h2o:budget=60,slack=3"), options);
        const engine::PromptTokens prompt{.document =
                                              test::random_tokens(n_tokens, model.hyper().n_vocab)};
        const engine::Plan plan = session.plan(prompt, n_predict);
        session.reserve(plan.max_rows);
        session.read(prompt, {});
        session.generate({.n_predict = n_predict, .ignore_eos = true, .sampling = {}}, {});
        EXPECT_LE(session.peak_footprint().scratch_bytes, plan.footprint.scratch_bytes)
            << n_tokens << " " << n_predict;
        EXPECT_GE(session.peak_footprint().scratch_bytes * 2, plan.footprint.scratch_bytes);
      }
    }
  }
}

// With slack fewer chunks are cut, and the end of the prompt leaves the budget all the same.
TEST(PerChunk, SlackMakesEvictionsRarer) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 20});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  const auto read = [&](const char* policy) {
    Sequence sequence = test::make_sequence(model, policy, 100);
    const engine::Feed feed{&sequence, tokens};
    engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kPerChunk, .progress = {}});
    EXPECT_EQ(sequence.cache.longest(), 40);
    EXPECT_TRUE(sequence.evicted_during_prompt);
    return sequence.evictions.count;
  };
  EXPECT_EQ(read("knorm:budget=40"), 8);           // at 60, 80, … tokens
  EXPECT_EQ(read("knorm:budget=40,slack=20"), 4);  // each second of them
}

}  // namespace
}  // namespace winnow
