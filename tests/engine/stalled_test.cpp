// Stalled positions repeat a published fault to the letter; everywhere else the position is that of the token, always.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "base/error.h"
#include "engine/session.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/policies.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::Sequence;
using model::Model;
using testing::HasSubstr;

constexpr int kTokens = 200;

// By how much each token of a text fed one by one is rotated less than its position says.
std::vector<int> drifts(const Model& model, const std::string& policy) {
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, policy);
  std::vector<int> drift;
  for (const int32_t token : test::random_tokens(kTokens, model.hyper().n_vocab)) {
    drift.push_back(sequence.positions_fed - sequence.next_rotation());
    test::decode_all(engine, sequence, {&token, 1});
  }
  EXPECT_EQ(sequence.positions_fed, kTokens);
  return drift;
}

TEST(Stalled, DriftsAsPublished) {
  const Model model(test::write_tiny_model(), {});
  const std::string filters =
      ",filters=" + test::write_filters(test::random_filters(test::filter_shape(model)));
  for (const std::string& policy :
       {std::string("knorm:budget=64"), "qfilters:budget=64" + filters}) {
    const std::vector<int> drift = drifts(model, policy + ",positions=stalled");
    for (const auto& [position, expected] :
         std::map<int, int>{{63, 0}, {64, 0}, {70, 6}, {100, 36}, {199, 135}}) {
      EXPECT_EQ(drift[static_cast<size_t>(position)], expected) << policy << ", " << position;
    }
  }
}

TEST(Stalled, NothingDriftsOtherwise) {
  const Model model(test::write_tiny_model(), {});
  for (const std::string& policy : test::all_policies(32, test::filter_shape(model))) {
    if (policy.find("positions=") == std::string::npos) {
      EXPECT_EQ(drifts(model, policy), std::vector<int>(kTokens, 0)) << policy;
    }
  }
}

// Of the newest row of the first layer, whose key depends on its token and rotation alone.
std::vector<std::byte> newest_key(const Sequence& sequence) {
  const cache::HeadRows rows = sequence.cache.rows(0, 0);
  const size_t bytes = static_cast<size_t>(rows.head_dim) * cache::element_bytes(rows.key_type);
  const std::byte* const key = rows.keys + static_cast<size_t>(rows.n - 1) * bytes;
  return {key, key + bytes};
}

TEST(Stalled, NewKeysAreRotatedToTheNumberOfRowsAndOldOnesStay) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  const auto at = [&](int position) {  // the last token there
    Sequence fresh = test::make_sequence(model);
    test::feed_all(engine, fresh, std::span(tokens).first(static_cast<size_t>(position)));
    test::decode_all(engine, fresh, std::span(tokens).last(1));
    return newest_key(fresh);
  };
  Sequence stalled = test::make_sequence(model, "streaming:budget=64,positions=stalled");
  test::decode_all(engine, stalled, tokens);
  EXPECT_EQ(newest_key(stalled), at(64));
  Sequence right = test::make_sequence(model, "streaming:budget=64");
  test::decode_all(engine, right, tokens);
  EXPECT_EQ(newest_key(right), at(149));
  // A sink is what it was.
  EXPECT_EQ(std::memcmp(stalled.cache.rows(0, 0).keys, right.cache.rows(0, 0).keys, 64), 0);
}

// A prompt that is cut as it comes has later chunks rotated to what is left of the earlier ones; with legacy order too.
TEST(Stalled, ChunksOfAPromptStallToo) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(160, model.hyper().n_vocab);
  const auto fed = [&](const std::string& policy, engine::PromptEviction eviction) {
    Engine engine(model, {.n_threads = 1, .n_batch = 40});
    Sequence sequence = test::make_sequence(model, policy);
    const engine::Feed feed{
        .sequence = &sequence, .tokens = tokens, .logits = engine::WantedLogits::kLast};
    const auto logits = engine.feed({&feed, 1}, {.eviction = eviction, .progress = {}})[0];
    EXPECT_EQ(sequence.positions_fed, 160);
    EXPECT_EQ(sequence.cache.n_cached(0, 0), 32);
    return std::pair(newest_key(sequence), logits);
  };
  for (const auto eviction :
       {engine::PromptEviction::kPerChunk, engine::PromptEviction::kLegacyOrder}) {
    const auto right = fed("streaming:budget=32", eviction);
    const auto stalled = fed("streaming:budget=32,positions=stalled", eviction);
    EXPECT_NE(stalled.first, right.first);
    EXPECT_FALSE(test::same_bits(stalled.second, right.second));
  }
}

TEST(Stalled, IsNothingToGoOnFrom) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(100, model.hyper().n_vocab);
  Sequence stalled = test::make_sequence(model, "knorm:budget=64,positions=stalled");
  test::feed_all(engine, stalled, tokens);
  EXPECT_THAT(
      test::error_of(
          ErrorCode::kInvalidArgument,
          [&] { engine.fork(stalled, {.policy = policy::Policy::parse("knorm:budget=32")}); }),
      HasSubstr("rows were read at other positions than their own"));
  Sequence copy = engine::fork(stalled);
  const auto next = test::random_tokens(10, model.hyper().n_vocab, 2);
  EXPECT_TRUE(test::same_bits(test::decode_all(engine, copy, next),
                              test::decode_all(engine, stalled, next)));
}

}  // namespace
}  // namespace winnow
