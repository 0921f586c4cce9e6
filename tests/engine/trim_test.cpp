// Trimming goes back exactly, to every length whose rows are all still there, and is refused for others.

#include <gtest/gtest.h>

#include <climits>

#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using test::error_of;

std::string refusal(Sequence& sequence, int n_positions) {
  const auto before = test::kept_positions(sequence.cache);
  const int n_fed = sequence.positions_fed;
  std::string message = error_of(ErrorCode::kInvalidArgument, [&] { trim(sequence, n_positions); });
  EXPECT_EQ(test::kept_positions(sequence.cache), before);  // nothing was touched
  EXPECT_EQ(sequence.positions_fed, n_fed);
  return message;
}

TEST(Trim, TheSameTokensGiveTheSameBitsAgain) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto prompt = test::random_tokens(150, model.hyper().n_vocab);
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 2);
  const std::span<const int32_t> all(prompt);
  Sequence fresh = test::make_sequence(model);
  const auto prompt_logits = test::feed_all(engine, fresh, prompt);
  const auto next_logits = test::decode_all(engine, fresh, next);

  const auto n_vocab = static_cast<size_t>(model.hyper().n_vocab);
  Sequence sequence = engine::fork(fresh);
  for (const int length : {170, 163, 150, 149, 64, 1, 0}) {
    trim(sequence, length);
    EXPECT_EQ(sequence.positions_fed, length);
    EXPECT_EQ(sequence.cache.longest(), length);
    const auto at = static_cast<size_t>(std::min(length, 150));
    if (length < 150) {  // the rest of the prompt again
      const auto logits = test::feed_all(engine, sequence, all.subspan(at));
      EXPECT_TRUE(test::same_bits(logits, std::span(prompt_logits).subspan(at * n_vocab)));
    }
    const auto n_decoded = static_cast<size_t>(std::max(length - 150, 0));
    const auto logits = test::decode_all(engine, sequence, std::span(next).subspan(n_decoded));
    EXPECT_TRUE(test::same_bits(logits, std::span(next_logits).subspan(n_decoded * n_vocab)));
    EXPECT_EQ(test::kept_positions(sequence.cache), test::kept_positions(fresh.cache));
  }
}

TEST(Trim, GivesMemoryBack) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 512});
  Sequence sequence = test::make_sequence(model);
  test::feed_all(engine, sequence, test::random_tokens(3000, model.hyper().n_vocab));
  const size_t before = sequence.cache.committed_bytes();
  trim(sequence, 100);
  EXPECT_EQ(sequence.cache.now_bytes(), sequence.cache.shape().full_bytes(100));
  EXPECT_LT(sequence.cache.committed_bytes(), before / 10);
  EXPECT_EQ(sequence.cache.peak_bytes(), sequence.cache.shape().full_bytes(3000));
}

// Where a window has moved on, only lengths whose next window is still there: exact, or refused.
TEST(Trim, AWindowMustStillBeThere) {
  const Model model(test::write_tiny_model(test::windowed_model()), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(130, model.hyper().n_vocab);
  const auto next = test::random_tokens(70, model.hyper().n_vocab, 2);
  const auto n_vocab = static_cast<size_t>(model.hyper().n_vocab);
  Sequence fresh = test::make_sequence(model, "full", 400);
  test::feed_all(engine, fresh, prompt);
  const auto expected = test::decode_all(engine, fresh, next);
  int n_trimmed = 0;
  int n_refused = 0;
  for (int n_decoded = 1; n_decoded <= 60; n_decoded += 3) {
    Sequence source = test::make_sequence(model, "full", 400);
    test::feed_all(engine, source, prompt);
    test::decode_all(engine, source, std::span(next).first(static_cast<size_t>(n_decoded)));
    for (int length = 0; length <= source.positions_fed; ++length) {
      // The next query sees test::kTinyWindow positions, its own included.
      const int first_needed = std::max(0, length - test::kTinyWindow + 1);
      const bool is_there = length == 0 || source.cache.rows(0, 0).positions[0] <= first_needed;
      Sequence sequence = engine::fork(source);
      if (!is_there) {
        const std::string message = refusal(sequence, length);
        EXPECT_NE(message.find("layer 0, KV head 0 has lost the row of position " +
                               std::to_string(first_needed) + " "),
                  std::string::npos)
            << message;
        ++n_refused;
        continue;
      }
      trim(sequence, length);
      ++n_trimmed;
      if (length < 130) {  // the rest of the prompt, or all of it
        test::feed_all(engine, sequence, std::span(prompt).subspan(static_cast<size_t>(length)));
      }
      const auto rest = std::span(next).subspan(static_cast<size_t>(std::max(length - 130, 0)));
      EXPECT_TRUE(test::same_bits(test::decode_all(engine, sequence, rest),
                                  std::span(expected).last(rest.size() * n_vocab)));
    }
  }
  EXPECT_GT(n_trimmed, 100);
  EXPECT_GT(n_refused, 1000);
}

TEST(Trim, AfterAnEvictionToItsEndOrBeforeWhatIsGone) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(100, model.hyper().n_vocab);
  const auto next = test::random_tokens(30, model.hyper().n_vocab, 2);
  // Sinks 0 … 3 and the last rows: position 4 goes first. The slack lets decoding go on without eviction.
  const char* const policy = "streaming:budget=30,slack=10";
  Sequence cut = test::make_sequence(model, policy);
  test::feed_all(engine, cut, prompt);
  Sequence source = engine::fork(cut);
  const auto expected = test::decode_all(engine, source, next);  // evicts at 111 and 122

  Sequence sequence = engine::fork(cut);
  test::decode_all(engine, sequence, std::span(next).first(10));
  EXPECT_EQ(sequence.evictions.count, 1);
  const std::string between = refusal(sequence, 99);
  EXPECT_NE(between.find("layer 0, KV head 0 has lost the row of position 4 (allowed: 0 … 4 and "
                         "100 … 110)"),
            std::string::npos)
      << between;
  EXPECT_NE(refusal(sequence, 5).find("position 4"), std::string::npos);
  for (const int length : {110, 107, 100}) {
    trim(sequence, length);
    const auto rest = std::span(next).subspan(static_cast<size_t>(length - 100));
    Sequence again = engine::fork(sequence);
    EXPECT_TRUE(test::same_bits(
        test::decode_all(engine, again, rest),
        std::span(expected).last(rest.size() * static_cast<size_t>(model.hyper().n_vocab))));
    EXPECT_EQ(test::kept_positions(again.cache), test::kept_positions(source.cache));
  }
  trim(sequence, 4);  // everything is there again, so any length is
  EXPECT_EQ(sequence.cache.longest(), 4);
  test::feed_all(engine, sequence, std::span(prompt).subspan(4));
  EXPECT_EQ(test::kept_positions(sequence.cache), test::kept_positions(cut.cache));

  EXPECT_NE(refusal(source, 121).find("122 … 130"), std::string::npos);
  trim(source, 122);
}

TEST(Trim, ForgetsThatAPromptWasCutOnTheWayOnlyWhereItWasNot) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 20});
  const auto prompt = test::random_tokens(100, model.hyper().n_vocab);
  Sequence sequence = test::make_sequence(model, "streaming:budget=30");
  const engine::Feed feed{.sequence = &sequence, .tokens = prompt};
  engine.feed({&feed, 1}, {.eviction = engine::PromptEviction::kPerChunk, .progress = {}});
  EXPECT_TRUE(sequence.evicted_during_prompt);
  trim(sequence, 100);
  EXPECT_TRUE(sequence.evicted_during_prompt);
  trim(sequence, 3);
  EXPECT_FALSE(sequence.evicted_during_prompt);
}

TEST(Trim, RefusesLengthsThatWereNeverFed) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(model);
  test::feed_all(engine, sequence, test::random_tokens(20, model.hyper().n_vocab));
  for (const int length : {-1, 21, INT_MIN, INT_MAX}) {
    const std::string message = refusal(sequence, length);
    EXPECT_NE(message.find(std::to_string(length) + " positions"), std::string::npos) << message;
    EXPECT_NE(message.find("0 … 20"), std::string::npos) << message;
  }
}

// A prompt that was cancelled half-way leaves rows in some layers; without them the sequence goes on as if it had not
// begun.
TEST(Trim, MakesAHalfFedSequenceUsableWhereNothingOfItIsGone) {
  const auto cancel_feed = [](Engine& engine, Sequence& sequence, std::span<const int32_t> tokens,
                              PrefillOrder order, int n_steps) {
    std::atomic<bool> cancel{false};
    int n = 0;
    const engine::FeedOptions options{
        .order = order, .progress = [&](double) { cancel = ++n == n_steps; }, .cancel = &cancel};
    const engine::Feed feed{.sequence = &sequence, .tokens = tokens};
    error_of(ErrorCode::kCancelled, [&] { engine.feed({&feed, 1}, options); });
    EXPECT_FALSE(sequence.is_usable);
  };
  const Model model(test::write_tiny_model({.n_layers = 3}), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 16});
  const auto begin = test::random_tokens(30, model.hyper().n_vocab);
  const auto more = test::random_tokens(60, model.hyper().n_vocab, 2);
  const auto next = test::random_tokens(10, model.hyper().n_vocab, 3);
  for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
    for (const char* policy : {"full", "knorm:budget=30"}) {
      Sequence sequence = test::make_sequence(model, policy);
      test::feed_all(engine, sequence, begin, order);
      Sequence expected = engine::fork(sequence);
      cancel_feed(engine, sequence, more, order, 3);
      EXPECT_NE(refusal(sequence, 31).find("0 … 30"), std::string::npos);
      trim(sequence, 30);
      EXPECT_TRUE(sequence.is_usable);
      EXPECT_TRUE(test::same_bits(test::decode_all(engine, sequence, next),
                                  test::decode_all(engine, expected, next)));
    }
  }
  // Layer 0 has been cut already, and with it rows that the sequence had before.
  Sequence sequence = test::make_sequence(model, "streaming:budget=30");
  test::feed_all(engine, sequence, begin, PrefillOrder::kLayerMajor);
  cancel_feed(engine, sequence, more, PrefillOrder::kLayerMajor, 5);
  const std::string message = refusal(sequence, 30);
  EXPECT_NE(message.find("layer 0, KV head 0 has lost the row of position 4 (allowed: 0 … 4)"),
            std::string::npos)
      << message;
  EXPECT_FALSE(sequence.is_usable);
  trim(sequence, 4);
  EXPECT_TRUE(sequence.is_usable);
  EXPECT_EQ(sequence.cache.longest(), 4);
}

TEST(Trim, PoliciesThatHaveSeenLaterQueriesCannotGoBack) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(60, model.hyper().n_vocab);
  for (const char* policy :
       {"snapkv:budget=100", "tova:budget=100", "h2o:budget=100", "expected-attention:budget=100",
        "knorm+squeeze:budget=100", "knorm+cake:budget=100"}) {
    Sequence sequence = test::make_sequence(model, policy);
    const auto expected = test::feed_all(engine, sequence, tokens, PrefillOrder::kChunkMajor);
    const std::string message =
        test::error_of(ErrorCode::kInvalidArgument, [&] { engine::trim(sequence, 50); });
    EXPECT_NE(message.find("later tokens (allowed: 0 and 60)"), std::string::npos) << message;
    engine::trim(sequence, 60);
    EXPECT_EQ(sequence.positions_fed, 60);
    engine::trim(sequence, 0);
    EXPECT_TRUE(test::same_bits(test::feed_all(engine, sequence, tokens, PrefillOrder::kChunkMajor),
                                expected))
        << policy;
    Sequence fresh = test::make_sequence(model, policy);
    test::feed_all(engine, fresh, tokens, PrefillOrder::kChunkMajor);
    const auto next = test::random_tokens(60, model.hyper().n_vocab, 2);
    EXPECT_TRUE(test::same_bits(test::decode_all(engine, sequence, next),
                                test::decode_all(engine, fresh, next)))
        << policy;
  }
}

// Whatever else stands in the way, what is allowed is the same.
TEST(Trim, WhatIsAllowedThenDoesNotDependOnRowsThatAreGone) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "snapkv:budget=20,obs_window=4");
  test::feed_all(engine, sequence, test::random_tokens(60, model.hyper().n_vocab));
  for (const int n_positions : {1, 30, 59}) {
    EXPECT_NE(
        test::error_of(ErrorCode::kInvalidArgument, [&] { engine::trim(sequence, n_positions); })
            .find("later tokens (allowed: 0 and 60)"),
        std::string::npos)
        << n_positions;
  }
}

}  // namespace
}  // namespace winnow
