// The engine's borders: what it refuses, and what a cancelled prompt leaves behind.

#include "engine/engine.h"

#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::DecodeInput;
using engine::Engine;
using engine::Feed;
using engine::FeedOptions;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using test::error_of;

class EngineBorders : public ::testing::Test {
 protected:
  Model model_{test::write_tiny_model(), {}};
  Engine engine_{model_, {.n_threads = 2, .n_batch = 32}};
  std::vector<int32_t> tokens_ = test::random_tokens(100, model_.hyper().n_vocab);
};

TEST_F(EngineBorders, RefusesWhatCannotBeFed) {
  Sequence sequence = test::make_sequence(model_, "full", 120);
  const auto feed = [&](std::span<const int32_t> tokens, const FeedOptions& options = {}) {
    const Feed one{.sequence = &sequence, .tokens = tokens};
    engine_.feed({&one, 1}, options);
  };
  const std::vector<int32_t> bad{1, model_.hyper().n_vocab};
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { feed({}); }).find("no tokens"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { feed(bad); }).find("vocabulary"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument,
                     [&] {
                       feed(tokens_, {.order = PrefillOrder::kLayerMajor,
                                      .eviction = engine::PromptEviction::kPerChunk,
                                      .progress = {}});
                     })
                .find("chunk-major"),
            std::string::npos);
  feed(tokens_);
  const std::string full = error_of(ErrorCode::kInvalidArgument, [&] { feed(tokens_); });
  EXPECT_NE(full.find("no room for 100 more rows"), std::string::npos) << full;
  EXPECT_NE(full.find("at most 120"), std::string::npos) << full;
  EXPECT_TRUE(sequence.is_usable);  // nothing was touched
  Sequence fresh = test::make_sequence(model_);
  const Feed twice[] = {{&fresh, tokens_}, {&fresh, tokens_}};
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { engine_.feed(twice, {}); }).find("twice"),
            std::string::npos);
  const DecodeInput both[] = {{&sequence, 1}, {&sequence, 1}};
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { engine_.decode(both); }).find("twice"),
            std::string::npos);
  EXPECT_TRUE(engine_.decode({}).empty());
}

TEST_F(EngineBorders, RefusesChunksThatWouldNotFitBesideTheBudget) {
  Sequence sequence = test::make_sequence(model_, "knorm:budget=40", 71);  // 40 + 32 are needed
  const Feed one{.sequence = &sequence, .tokens = tokens_};
  const FeedOptions per_chunk{.eviction = engine::PromptEviction::kPerChunk, .progress = {}};
  const std::string message = error_of(ErrorCode::kInvalidArgument, [&] {
    engine_.feed({&one, 1}, per_chunk);
  });
  EXPECT_NE(message.find("no room for 72 more rows"), std::string::npos) << message;
  EXPECT_TRUE(sequence.is_usable);
}

TEST_F(EngineBorders, ACancelledPromptLeavesTheSequenceUnusableAndOthersAlone) {
  for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
    Sequence cancelled = test::make_sequence(model_);
    Sequence other = test::make_sequence(model_);
    std::atomic<bool> cancel{false};
    int n_steps = 0;
    const FeedOptions options{
        .order = order, .progress = [&](double) { cancel = ++n_steps == 2; }, .cancel = &cancel};
    const Feed one{.sequence = &cancelled, .tokens = tokens_};
    error_of(ErrorCode::kCancelled, [&] { engine_.feed({&one, 1}, options); });
    EXPECT_FALSE(cancelled.is_usable);
    const DecodeInput next{&cancelled, 1};
    EXPECT_NE(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         engine_.decode({&next, 1});
                       })
                  .find("cancelled"),
              std::string::npos);
    test::feed_all(engine_, other, tokens_, order);
    EXPECT_EQ(other.positions_fed, 100);
  }
}

TEST_F(EngineBorders, ProgressRunsToOne) {
  for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
    Sequence sequence = test::make_sequence(model_);
    double last = 0;
    const Feed one{.sequence = &sequence, .tokens = tokens_};
    engine_.feed({&one, 1}, {.order = order, .progress = [&](double fraction) {
                               EXPECT_GT(fraction, last);
                               last = fraction;
                             }});
    EXPECT_EQ(last, 1.0);
  }
}

// Graphs share a buffer: when a longer chunk makes it grow, those that lie in the old one are gone.
TEST_F(EngineBorders, AShortPromptReadsAlikeBeforeAndAfterALongOne) {
  Engine engine(model_, {.n_threads = 1, .n_batch = 100});
  const std::span<const int32_t> few = std::span(tokens_).first(9);
  Sequence before = test::make_sequence(model_);
  Sequence between = test::make_sequence(model_);
  Sequence after = test::make_sequence(model_);
  const auto logits = test::feed_all(engine, before, few);
  test::feed_all(engine, between, tokens_);
  EXPECT_TRUE(test::same_bits(logits, test::feed_all(engine, after, few)));
}

TEST_F(EngineBorders, LogitsComeForTheTokensThatWereAskedFor) {
  const auto n_vocab = static_cast<size_t>(model_.hyper().n_vocab);
  Sequence a = test::make_sequence(model_);
  Sequence b = test::make_sequence(model_);
  Sequence c = test::make_sequence(model_);
  const std::span<const int32_t> all(tokens_);
  const Feed feeds[] = {{&a, all.first(50), engine::WantedLogits::kAll},
                        {&b, all.first(50), engine::WantedLogits::kLast},
                        {&c, all.first(7), engine::WantedLogits::kNone}};
  const auto logits = engine_.feed(feeds, {});
  ASSERT_EQ(logits[0].size(), 50 * n_vocab);
  ASSERT_EQ(logits[1].size(), n_vocab);
  EXPECT_TRUE(logits[2].empty());
  EXPECT_TRUE(test::same_bits(std::span(logits[0]).last(n_vocab), logits[1]));
}

}  // namespace
}  // namespace winnow
