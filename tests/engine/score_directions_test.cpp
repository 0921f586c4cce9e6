// Keys are projected on a method's directions as they are appended: those bits, however a sequence got its rows.

#include "kernels/score_directions.h"

#include <gtest/gtest.h>

#include "engine/session.h"
#include "kernels/row_kernels.h"
#include "support/filters.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using policy::FilterFrame;

// Filters of which some heads have none.
std::string filters_of(const Model& model, FilterFrame frame, uint32_t seed = 1) {
  policy::Filters filters = test::random_filters(test::filter_shape(model), seed);
  filters.frame = frame;
  filters.is_guarded[1] = true;
  return test::write_filters(filters);
}

std::string spec(const Model& model, FilterFrame frame, uint32_t seed = 1) {
  return "qfilters:budget=40,filters=" + filters_of(model, frame, seed);
}

// The scores in the cache of layers without a window are what all that attention sees projects to.
void expect_scores_of_keys(const Sequence& sequence, const kernels::Rotation& rotation) {
  const cache::CacheShape& shape = sequence.cache.shape();
  const kernels::ScoreDirections* const directions = sequence.policy.score_directions();
  ASSERT_NE(directions, nullptr);
  ASSERT_TRUE(shape.stores_scores && shape.score_kind == cache::StaticScore::kProjection);
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; shape.swa_window(layer) == 0 && kv_head < shape.n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, kv_head);
      std::vector<float> expected(static_cast<size_t>(rows.n));
      Scratch scratch;
      kernels::project_keys(rows, *directions, layer, kv_head, &rotation, scratch, expected);
      ASSERT_TRUE(test::same_bits({rows.scores, expected.size()}, expected))
          << "layer " << layer << ", KV head " << kv_head;
    }
  }
}

TEST(ScoreDirections, WhatIsAppendedIsWhatKeysProjectTo) {
  test::TinyModelOptions halves;
  halves.architecture = "qwen2";
  for (const test::TinyModelOptions& options :
       {test::TinyModelOptions{}, halves, test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {});
    const kernels::Rotation rotation = model.rotation(0);
    for (const FilterFrame frame : {FilterFrame::kPost, FilterFrame::kPre, FilterFrame::kLegacy}) {
      for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
        Engine engine(model, {.n_threads = 2, .n_batch = 48});
        Sequence sequence =
            test::make_sequence(model, spec(model, frame), 400, cache::RowType::kF16);
        test::feed_all(engine, sequence, test::random_tokens(150, model.hyper().n_vocab), order);
        expect_scores_of_keys(sequence, rotation);
        test::decode_all(engine, sequence, test::random_tokens(30, model.hyper().n_vocab, 2));
        expect_scores_of_keys(sequence, rotation);
        EXPECT_EQ(sequence.cache.longest(), 40);
        engine::trim(sequence, sequence.positions_fed);
        test::feed_all(engine, sequence, test::random_tokens(50, model.hyper().n_vocab, 3));
        expect_scores_of_keys(sequence, rotation);
        expect_scores_of_keys(engine::fork(sequence), rotation);
      }
    }
  }
}

// Whatever the source keeps beside its rows.
TEST(ScoreDirections, ForksHaveTheScoresOfTheirOwnPolicy) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto prompt = test::random_tokens(150, model.hyper().n_vocab);
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 3);
  const std::string wide = "budget=1000,filters=";
  const std::vector<std::string> sources{
      "full", "knorm:budget=1000", "qfilters:" + wide + filters_of(model, FilterFrame::kPost),
      "qfilters:" + wide + filters_of(model, FilterFrame::kPost, 2),
      "qfilters:" + wide + filters_of(model, FilterFrame::kPre)};
  const std::vector<std::string> targets{
      "knorm:budget=40", spec(model, FilterFrame::kPost), spec(model, FilterFrame::kPost, 2),
      spec(model, FilterFrame::kPre), spec(model, FilterFrame::kPost, 3) + ",positions=contiguous"};
  for (const std::string& target : targets) {
    Sequence expected = test::make_sequence(model, target, 200);
    test::feed_all(engine, expected, prompt);
    const auto logits = test::decode_all(engine, expected, next);
    for (const std::string& source : sources) {
      Sequence read = test::make_sequence(model, source, 200);
      test::feed_all(engine, read, prompt);
      Sequence fork = engine.fork(read, {.policy = policy::Policy::parse(target)});
      EXPECT_TRUE(test::same_bits(test::decode_all(engine, fork, next), logits))
          << source << " -> " << target;
      EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(expected.cache));
    }
  }
}

}  // namespace
}  // namespace winnow
