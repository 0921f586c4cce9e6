// A fork goes on as its source would have, and one cut to another policy as if that policy had read the prompt.

#include <gtest/gtest.h>

#include "kernels/parallel.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/policies.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::ForkOptions;
using engine::Sequence;
using model::Model;
using test::error_of;

ForkOptions under(const char* policy, int max_rows = 0) {
  return {.policy = policy::Policy::parse(policy), .max_rows = max_rows};
}

TEST(Fork, GoesOnAsItsSourceDoesAndApartFromIt) {
  for (const test::TinyModelOptions& options : {test::TinyModelOptions{}, test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {});
    Engine engine(model, {.n_threads = 2, .n_batch = 64});
    for (const char* policy : {"full", "knorm:budget=50", "streaming:budget=50,slack=7"}) {
      Sequence source = test::make_sequence(model, policy, 400, cache::RowType::kF16);
      test::feed_all(engine, source, test::random_tokens(150, model.hyper().n_vocab));
      Sequence fork = engine::fork(source);
      EXPECT_EQ(fork.policy.spec(), source.policy.spec());
      EXPECT_EQ(fork.positions_fed, 150);
      EXPECT_EQ(fork.evictions.count, source.evictions.count);
      EXPECT_EQ(fork.cache.rows_evicted(), source.cache.rows_evicted());
      EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(source.cache));
      EXPECT_EQ(fork.cache.now_bytes(), source.cache.now_bytes());
      EXPECT_EQ(fork.cache.peak_bytes(), fork.cache.now_bytes());
      EXPECT_LE(fork.cache.committed_bytes(), source.cache.committed_bytes());

      // What the fork reads is nothing to the source.
      Sequence other = engine::fork(source);
      test::decode_all(engine, other, test::random_tokens(30, model.hyper().n_vocab, 8));
      const auto more = test::random_tokens(40, model.hyper().n_vocab, 2);
      const auto next = test::random_tokens(20, model.hyper().n_vocab, 3);
      const auto expected_more = test::feed_all(engine, source, more);
      const auto expected_next = test::decode_all(engine, source, next);
      EXPECT_TRUE(test::same_bits(expected_more, test::feed_all(engine, fork, more)));
      EXPECT_TRUE(test::same_bits(expected_next, test::decode_all(engine, fork, next)));
      EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(source.cache));
    }
  }
}

// One prefill of the full cache, then one compressed copy for each policy and budget.
TEST(Fork, CutToAPolicyIsAsIfThePolicyHadReadThePrompt) {
  for (const test::TinyModelOptions& options : {test::TinyModelOptions{}, test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {});
    Engine engine(model, {.n_threads = 2, .n_batch = 64});
    const auto prompt = test::random_tokens(150, model.hyper().n_vocab);
    const auto next = test::random_tokens(20, model.hyper().n_vocab, 3);
    for (const cache::RowType type :
         {cache::RowType::kF32, cache::RowType::kF16, cache::RowType::kBf16}) {
      Sequence full = test::make_sequence(model, "full", 200, type);
      test::feed_all(engine, full, prompt);
      for (const char* policy :
           {"knorm:budget=32", "knorm:budget=20,keep=high,n_recent=0", "streaming:budget=32",
            "random:budget=32,slack=5", "streaming+rank+criticalkv:budget=32", "knorm:budget=1000",
            "full"}) {
        SCOPED_TRACE(policy);
        Sequence expected = test::make_sequence(model, policy, 200, type);
        test::feed_all(engine, expected, prompt);
        Sequence fork = engine.fork(full, under(policy));
        EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(expected.cache));
        EXPECT_EQ(fork.cache.shape().stores_scores, expected.cache.shape().stores_scores);
        EXPECT_EQ(fork.cache.rows_evicted(), expected.cache.rows_evicted());
        EXPECT_EQ(fork.evictions.count, expected.evictions.count);
        EXPECT_EQ(fork.cache.peak_bytes(), fork.cache.now_bytes());
        EXPECT_TRUE(test::same_bits(test::decode_all(engine, fork, next),
                                    test::decode_all(engine, expected, next)));
        EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(expected.cache));
      }
      EXPECT_EQ(full.cache.longest(), 150);
    }
  }
}

// What attention left behind goes with the rows: a copy evicts what the original would.
TEST(Fork, CopiesWhatThePolicyHasSeen) {
  const Model model(test::write_tiny_model(test::windowed_model()), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 3);
  for (const std::string& policy : test::all_policies(32, test::filter_shape(model))) {
    Sequence source = test::make_sequence(model, policy, 200);
    test::feed_all(engine, source, test::random_tokens(150, model.hyper().n_vocab));
    Sequence copy = engine::fork(source);
    Sequence cut = engine.fork(source, under(policy.c_str()));
    const auto expected = test::decode_all(engine, source, next);
    for (Sequence* fork : {&copy, &cut}) {
      EXPECT_TRUE(test::same_bits(test::decode_all(engine, *fork, next), expected)) << policy;
      EXPECT_EQ(test::kept_positions(fork->cache), test::kept_positions(source.cache)) << policy;
    }
  }
}

TEST(Fork, ToAPolicyThatNeedsWhatWasNotSeenIsRefused) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto refusal = [&](const char* from, const char* to) {
    Sequence source = test::make_sequence(model, from, 200);
    test::feed_all(engine, source, test::random_tokens(100, model.hyper().n_vocab));
    return error_of(ErrorCode::kInvalidArgument, [&] { engine.fork(source, under(to)); });
  };
  EXPECT_NE(refusal("full", "snapkv:budget=32").find("needs the last 64 queries"),
            std::string::npos);
  EXPECT_NE(refusal("tova:budget=40", "snapkv:budget=32").find("'tova:budget=40'"),
            std::string::npos);
  EXPECT_NE(refusal("knorm:budget=40", "h2o:budget=32").find("column mass"), std::string::npos);
  EXPECT_NE(refusal("full", "expected-attention:budget=32").find("the moments of all queries"),
            std::string::npos);
}

TEST(Fork, IsAsLargeAsAsked) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence full = test::make_sequence(model, "full", 200);
  test::feed_all(engine, full, test::random_tokens(150, model.hyper().n_vocab));
  Sequence small = engine.fork(full, under("knorm:budget=32", 33));  // 150 rows would not fit
  EXPECT_EQ(small.cache.shape().max_rows, 33);
  test::decode_all(engine, small, test::random_tokens(20, model.hyper().n_vocab, 3));
  EXPECT_EQ(small.cache.longest(), 32);
  Sequence large = engine.fork(full, {.policy = {}, .max_rows = 500});
  test::feed_all(engine, large, test::random_tokens(350, model.hyper().n_vocab, 3));
  EXPECT_EQ(large.cache.longest(), 500);
}

TEST(Fork, KeepsHiddenRowsHidden) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence source = test::make_sequence(model);
  test::feed_all(engine, source, test::random_tokens(60, model.hyper().n_vocab));
  const std::vector<int> seen{0, 1, 2, 30, 59};
  source.cache.hide_others(1, 0, seen);
  Sequence fork = engine::fork(source);
  const auto next = test::random_tokens(5, model.hyper().n_vocab, 3);
  EXPECT_TRUE(test::same_bits(test::decode_all(engine, fork, next),
                              test::decode_all(engine, source, next)));
}

TEST(Fork, RefusesWhatItCannotCopy) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence source = test::make_sequence(model, "full", 200);
  test::feed_all(engine, source, test::random_tokens(150, model.hyper().n_vocab));
  const auto refusal = [&](const char* policy, int max_rows) {
    return error_of(ErrorCode::kInvalidArgument,
                    [&] { engine.fork(source, under(policy, max_rows)); });
  };
  const std::string no_room = refusal("knorm:budget=64", 63);
  EXPECT_NE(no_room.find("no room for 64 rows in a fork of at most 63"), std::string::npos)
      << no_room;
  EXPECT_NE(refusal("full", -1).find("-1 rows"), std::string::npos);
  const std::string open = refusal("knorm:budget=10%", 0);
  EXPECT_NE(open.find("knorm:budget=10%"), std::string::npos) << open;
  EXPECT_NE(open.find("resolved"), std::string::npos) << open;
  source.is_usable = false;
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { engine::fork(source); }).find("half-way"),
            std::string::npos);
}

}  // namespace
}  // namespace winnow
