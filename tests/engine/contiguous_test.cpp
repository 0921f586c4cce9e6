// positions=contiguous: rows stand without gaps right before the query, whatever went between them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "engine/session_file.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::EvictWhen;
using engine::PrefillOrder;
using engine::PromptTokens;
using engine::Sequence;
using engine::Session;
using engine::SessionOptions;
using model::Model;
using policy::Policy;
using test::error_of;
using testing::HasSubstr;

// Every family, and every way in which files scale rotations.
std::vector<test::TinyModelOptions> rotations() {
  return {{.n_layers = 1},
          {.n_layers = 1, .rope_freqs = true},
          {.n_layers = 1, .rope_scale = 4.0F},
          {.n_layers = 1, .rope_scale = 4.0F, .rope_scaling = "yarn", .n_ctx_orig = 1024},
          {.architecture = "qwen2", .n_layers = 1},
          {.architecture = "qwen3", .n_layers = 1},
          {.architecture = "phi3", .n_layers = 1, .head_dim = 64, .n_rot = 48},
          {.architecture = "phi3", .n_layers = 1, .context_factors = true, .n_ctx_orig = 512}};
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - double{b[i]}));
  }
  return difference;
}

// In a model of one layer a row depends on its token alone, so that a cache whose rows stand without gaps is the cache
// of the tokens that are left, read from the start.
TEST(Contiguous, OneLayerSeesWhatAFreshPromptOfTheKeptTokensSees) {
  for (const test::TinyModelOptions& options : rotations()) {
    const Model model(test::write_tiny_model(options), {.n_threads = 1});
    Engine engine(model, {.n_threads = 1, .n_batch = 64});
    Sequence sequence =
        test::make_sequence(model, "streaming:budget=40,n_sink=4,positions=contiguous");
    auto tokens = test::random_tokens(200, model.hyper().n_vocab);
    test::feed_all(engine, sequence, tokens, PrefillOrder::kLayerMajor);
    for (const int32_t token : test::random_tokens(30, model.hyper().n_vocab, 2)) {
      EXPECT_EQ(sequence.next_rotation(), 40);
      std::vector<int32_t> kept(tokens.begin(), tokens.begin() + 4);
      kept.insert(kept.end(), tokens.end() - 36, tokens.end());
      Sequence fresh = test::make_sequence(model);
      test::feed_all(engine, fresh, kept);
      const auto expected = test::decode_all(engine, fresh, {&token, 1});
      const auto logits = test::decode_all(engine, sequence, {&token, 1});
      EXPECT_LT(largest_difference(expected, logits), 2e-5) << options.architecture;
      tokens.push_back(token);
    }
    // Prompts that come later stand behind what is left, too.
    const auto more = test::random_tokens(70, model.hyper().n_vocab, 3);
    std::vector<int32_t> kept(tokens.begin(), tokens.begin() + 4);
    kept.insert(kept.end(), tokens.end() - 36, tokens.end());
    Sequence fresh = test::make_sequence(model);
    test::feed_all(engine, fresh, kept);
    EXPECT_LT(largest_difference(test::feed_all(engine, fresh, more),
                                 test::feed_all(engine, sequence, more)),
              2e-5)
        << options.architecture;
  }
}

// Their own positions show that the test above can fail.
TEST(Contiguous, OriginalPositionsGiveSomethingElse) {
  const Model model(test::write_tiny_model({.n_layers = 1}), {.n_threads = 1});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  const auto next = test::random_tokens(1, model.hyper().n_vocab, 2);
  std::vector<std::vector<float>> logits;
  for (const char* positions : {"original", "contiguous"}) {
    Sequence sequence =
        test::make_sequence(model, "streaming:budget=40,positions=" + std::string(positions));
    test::feed_all(engine, sequence, tokens);
    logits.push_back(test::decode_all(engine, sequence, next));
  }
  EXPECT_GT(largest_difference(logits[0], logits[1]), 1e-3);
}

TEST(Contiguous, WithoutEvictionAreTheOriginalPositionsToTheBit) {
  for (const test::TinyModelOptions& options :
       {test::TinyModelOptions{}, test::TinyModelOptions{.architecture = "qwen2"},
        test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {.n_threads = 1});
    Engine engine(model, {.n_threads = 1, .n_batch = 64});
    const auto prompt = test::random_tokens(150, model.hyper().n_vocab);
    const auto next = test::random_tokens(20, model.hyper().n_vocab, 2);
    Sequence original = test::make_sequence(model, "full", 400, cache::RowType::kF16);
    Sequence contiguous = test::make_sequence(model, "knorm:budget=300,positions=contiguous", 400,
                                              cache::RowType::kF16);
    EXPECT_TRUE(test::same_bits(test::feed_all(engine, original, prompt),
                                test::feed_all(engine, contiguous, prompt)));
    EXPECT_TRUE(test::same_bits(test::decode_all(engine, original, next),
                                test::decode_all(engine, contiguous, next)));
    EXPECT_EQ(contiguous.next_rotation(), 170);
  }
}

// Rounded once, rows do not wear out: a row that stays is the row that was written.
TEST(Contiguous, RowsStayAsTheyWereWritten) {
  const Model model(test::write_tiny_model(), {.n_threads = 1});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(
      model, "streaming:budget=40,n_sink=4,positions=contiguous", 400, cache::RowType::kBf16);
  test::feed_all(engine, sequence, test::random_tokens(40, model.hyper().n_vocab));
  const size_t bytes = 4 * sequence.cache.shape().key_bytes();
  const auto sinks = [&] {
    const std::byte* const keys = sequence.cache.rows(1, 1).keys;
    return std::vector<std::byte>(keys, keys + bytes);
  };
  const auto before = sinks();
  test::decode_all(engine, sequence, test::random_tokens(500, model.hyper().n_vocab, 2));
  EXPECT_EQ(before, sinks());
  EXPECT_EQ(sequence.cache.rotation_end(), 41);
}

TEST(Contiguous, ReadsTheSameHoweverThePromptIsCut) {
  for (const test::TinyModelOptions& options : {test::TinyModelOptions{}, test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {.n_threads = 1});
    std::vector<float> first;
    for (const int n_batch : {17, 64, 300}) {
      for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
        Engine engine(model, {.n_threads = 2, .n_batch = n_batch});
        Sequence sequence =
            test::make_sequence(model, "snapkv+adakv:budget=24,obs_window=8,positions=contiguous");
        test::feed_all(engine, sequence, test::random_tokens(150, model.hyper().n_vocab), order);
        test::decode_all(engine, sequence, test::random_tokens(9, model.hyper().n_vocab, 2));
        test::feed_all(engine, sequence, test::random_tokens(90, model.hyper().n_vocab, 3), order);
        const auto logits =
            test::decode_all(engine, sequence, test::random_tokens(9, model.hyper().n_vocab, 4));
        if (first.empty()) {
          first = logits;
        }
        EXPECT_TRUE(test::same_bits(first, logits)) << n_batch << prefill_order_name(order);
      }
    }
  }
}

PromptTokens prompt_of(const Model& model, int n, uint32_t seed = 1) {
  return {.before = {1, 2, 3}, .document = test::random_tokens(n, model.hyper().n_vocab, seed)};
}

SessionOptions options_of(EvictWhen evict, int n_ctx = 0) {
  return {.n_ctx = n_ctx, .evict = evict, .order = {}, .engine = {.n_threads = 1, .n_batch = 32}};
}

TEST(ContiguousSession, GeneratesBeyondTheContext) {
  const Model model(test::write_tiny_model({.n_ctx_train = 128}), {.n_threads = 1});
  for (const char* positions : {"original", "contiguous"}) {
    const bool is_contiguous = std::string_view(positions) == "contiguous";
    Session session(model, Policy::parse("knorm:budget=40,positions=" + std::string(positions)),
                    options_of(EvictWhen::kAfterPrompt));
    session.read(prompt_of(model, 100), {});
    const auto answer =
        session.generate({.n_predict = 400, .ignore_eos = true, .sampling = {}}, {});
    EXPECT_EQ(answer.n_generated, is_contiguous ? 400 : 128 - 103 + 1);
    EXPECT_EQ(answer.stop,
              is_contiguous ? engine::StopReason::kLength : engine::StopReason::kContext);
  }
}

TEST(ContiguousSession, WhereAHeadReachesTheContextItStops) {
  const Model model(test::write_tiny_model({.n_ctx_train = 128}), {.n_threads = 1});
  Session session(model, Policy::parse("knorm:budget=200,positions=contiguous"),
                  options_of(EvictWhen::kAfterPrompt));
  session.read(prompt_of(model, 100), {});
  const auto answer = session.generate({.n_predict = 400, .ignore_eos = true, .sampling = {}}, {});
  EXPECT_EQ(answer.n_generated, 128 - 103 + 1);
  EXPECT_EQ(answer.stop, engine::StopReason::kContext);
}

// A prompt beyond the context fits where it is cut on the way, and only there.
TEST(ContiguousSession, ReadsAPromptBeyondTheContextChunkByChunk) {
  const Model model(test::write_tiny_model({.n_ctx_train = 128}), {.n_threads = 1});
  const PromptTokens prompt = prompt_of(model, 500);
  for (const char* positions : {"original", "contiguous"}) {
    for (const EvictWhen evict : {EvictWhen::kAfterPrompt, EvictWhen::kPerChunk}) {
      Session session(model, Policy::parse("knorm:budget=40,positions=" + std::string(positions)),
                      options_of(evict));
      if (std::string_view(positions) == "contiguous" && evict == EvictWhen::kPerChunk) {
        EXPECT_LE(session.plan(prompt, 10).max_rows, 40 + 32 + 1);
        session.read(prompt, {});
        EXPECT_EQ(session.sequence()->positions_fed, 503);
        EXPECT_LE(session.sequence()->cache.rotation_end(), 40 + 32);
      } else {
        EXPECT_THAT(error_of(ErrorCode::kInvalidArgument, [&] { session.read(prompt, {}); }),
                    HasSubstr("503 tokens"));
      }
    }
  }
}

TEST(ContiguousSession, AFileGoesOnAsTheSessionItWasSavedFrom) {
  for (const test::TinyModelOptions& options : {test::TinyModelOptions{}, test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {.n_threads = 1});
    for (const char* policy : {"snapkv+adakv:budget=24,obs_window=8,positions=contiguous",
                               "expected-attention:budget=24,positions=contiguous"}) {
      Session session(model, Policy::parse(policy), options_of(EvictWhen::kAfterPrompt));
      session.read(prompt_of(model, 100), {});
      session.generate({.n_predict = 60, .ignore_eos = true, .sampling = {}}, {});
      const std::string path = test::temporary_path("contiguous");
      session.save(path);
      Session other(model, engine::load_session(path, model), options_of(EvictWhen::kAfterPrompt));
      const auto fork = session.fork();
      const auto expected = session.read(prompt_of(model, 40, 5), {});
      for (Session* const copy : {&other, fork.get()}) {
        EXPECT_TRUE(test::same_bits(expected, copy->read(prompt_of(model, 40, 5), {}))) << policy;
      }
    }
  }
}

TEST(Contiguous, AForkGoesToContiguousPositionsButNotBack) {
  const Model model(test::write_tiny_model(), {.n_threads = 1});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto prompt = test::random_tokens(100, model.hyper().n_vocab);
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 2);
  Sequence full = test::make_sequence(model, "full", 400);
  test::feed_all(engine, full, prompt);
  Sequence fork = engine.fork(
      full, {.policy = Policy::parse("keydiff:budget=30,positions=contiguous"), .max_rows = 0});
  Sequence own = test::make_sequence(model, "keydiff:budget=30,positions=contiguous", 400);
  test::feed_all(engine, own, prompt);
  EXPECT_TRUE(
      test::same_bits(test::decode_all(engine, own, next), test::decode_all(engine, fork, next)));
  EXPECT_THAT(error_of(ErrorCode::kInvalidArgument,
                       [&] {
                         engine.fork(
                             own, {.policy = Policy::parse("streaming:budget=30"), .max_rows = 0});
                       }),
              testing::AllOf(HasSubstr("positions=original"), HasSubstr("positions=contiguous")));
}

TEST(Contiguous, TrimsToWhereItWas) {
  const Model model(test::write_tiny_model(), {.n_threads = 1});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence =
      test::make_sequence(model, "streaming:budget=40,slack=50,positions=contiguous", 400);
  test::feed_all(engine, sequence, test::random_tokens(100, model.hyper().n_vocab));
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 2);
  const auto first = test::decode_all(engine, sequence, next);
  engine::trim(sequence, 100);
  EXPECT_EQ(sequence.next_rotation(), 40);
  EXPECT_TRUE(test::same_bits(first, test::decode_all(engine, sequence, next)));
}

}  // namespace
}  // namespace winnow
