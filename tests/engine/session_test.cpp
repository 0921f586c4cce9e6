// A session goes on where it stopped: prompts and answers in pieces are what they are in one.

#include "engine/session.h"

#include <gtest/gtest.h>

#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::EvictWhen;
using engine::GenerateOptions;
using engine::Generation;
using engine::PrefillOrder;
using engine::PromptTokens;
using engine::Session;
using engine::SessionOptions;
using engine::StopReason;
using model::Model;
using policy::Policy;
using test::error_of;
using test::random_tokens;

class SessionTest : public ::testing::Test {
 protected:
  Session session(const char* policy, EvictWhen evict = EvictWhen::kAfterPrompt,
                  std::optional<PrefillOrder> order = {}, int n_ctx = 0) {
    return Session(model_, Policy::parse(policy),
                   {.n_ctx = n_ctx,
                    .evict = evict,
                    .order = order,
                    .engine = {.n_threads = 1, .n_batch = 64}});
  }
  PromptTokens document(int n, uint32_t seed = 1) const {
    return {.document = test::random_tokens(n, model_.hyper().n_vocab, seed)};
  }
  static Generation generate(Session& session, int n) {
    return session.generate({.n_predict = n, .ignore_eos = true, .sampling = {.temperature = 0}},
                            {});
  }

  Model model_{test::write_tiny_model(), {}};
};

TEST_F(SessionTest, AnAnswerInPiecesIsTheAnswer) {
  for (const char* policy : {"full", "knorm:budget=64", "streaming:budget=32,slack=5"}) {
    Session whole = session(policy);
    Session pieces = session(policy);
    whole.read(document(100), {});
    pieces.read(document(100), {});
    const std::string text = generate(whole, 30).text;
    std::string joined;
    for (const int n : {1, 0, 4, 25}) {
      joined += generate(pieces, n).text;
    }
    EXPECT_EQ(joined, text);
    EXPECT_EQ(pieces.sequence()->positions_fed, 129);  // the last token waits
    EXPECT_EQ(whole.sequence()->positions_fed, 129);
    EXPECT_EQ(test::kept_positions(whole.sequence()->cache),
              test::kept_positions(pieces.sequence()->cache));
  }
}

TEST_F(SessionTest, PromptsOneAfterTheOtherAreReadAsOne) {
  const PromptTokens all = document(150);
  PromptTokens first;
  PromptTokens second;
  first.document.assign(all.document.begin(), all.document.begin() + 90);
  second.document.assign(all.document.begin() + 90, all.document.end());
  Session once = session("full");
  Session twice = session("full");
  const auto logits = once.read(all, {});
  twice.read(first, {});
  EXPECT_TRUE(test::same_bits(twice.read(second, {}), logits));
}

TEST_F(SessionTest, ATokenThatWaitsIsFedBeforeTheNextPrompt) {
  Session session = this->session("full");
  session.read(document(20), {});
  generate(session, 3);
  EXPECT_EQ(session.sequence()->positions_fed, 22);
  session.read(document(10, 2), {});
  EXPECT_EQ(session.sequence()->positions_fed, 33);
}

TEST_F(SessionTest, APercentageIsOfAllDocumentsSoFar) {
  Session session = this->session("knorm:budget=10%");
  PromptTokens turn = document(200);
  turn.question = test::random_tokens(7, model_.hyper().n_vocab, 2);
  session.read(turn, {});
  EXPECT_EQ(session.policy().budget_rows(), 20 + 7);
  generate(session, 5);
  EXPECT_EQ(session.policy().budget_rows(), 27);
  EXPECT_FALSE(session.sequence()->evicted_during_prompt);
  session.read(document(300, 3), {});
  EXPECT_EQ(session.policy().budget_rows(), 50 + 7);
  EXPECT_TRUE(session.sequence()->evicted_during_prompt);
  session.plan(document(100), 0);
  EXPECT_EQ(session.policy().budget_rows(), 57);  // nothing was read
}

// The peak that a plan states on a sequence that holds rows already is the one that comes.
TEST_F(SessionTest, ThePlanOfALaterPromptHolds) {
  for (const char* policy : {"full", "knorm:budget=64", "knorm:budget=10%,slack=9"}) {
    for (const EvictWhen evict :
         {EvictWhen::kAfterPrompt, EvictWhen::kBeforeQuestion, EvictWhen::kPerChunk}) {
      for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
        if (evict == EvictWhen::kPerChunk && order == PrefillOrder::kLayerMajor) {
          continue;
        }
        SCOPED_TRACE(std::string(policy) + " " + evict_when_name(evict) + " " +
                     prefill_order_name(order));
        Session session = this->session(policy, evict, order);
        session.read(document(100), {});
        PromptTokens next = document(300, 2);
        next.question = test::random_tokens(20, model_.hyper().n_vocab, 3);
        const engine::Plan plan = session.plan(next, 40);
        EXPECT_EQ(plan.kv_held_bytes, session.sequence()->cache.now_bytes());
        session.read(next, {});
        EXPECT_EQ(plan.kv_prompt_bytes, session.sequence()->cache.now_bytes());
        generate(session, 40);
        EXPECT_EQ(plan.kv_peak_bytes, session.sequence()->cache.peak_bytes());
        EXPECT_EQ(plan.kv_full_bytes, session.shape().full_bytes(420 + 39));
      }
    }
  }
}

TEST_F(SessionTest, RefusesWhatTheContextHasNoRoomFor) {
  Session session = this->session("full", EvictWhen::kAfterPrompt, {}, 100);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { generate(session, 1); })
                .find("a prompt has to be read first"),
            std::string::npos);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { session.read({}, {}); }).find("empty"),
            std::string::npos);
  session.read(document(90), {});
  generate(session, 4);
  const std::string message =
      error_of(ErrorCode::kInvalidArgument, [&] { session.read(document(7), {}); });
  EXPECT_NE(message.find("has 7 tokens, the context 100, of which 94 are taken"), std::string::npos)
      << message;
  EXPECT_EQ(session.sequence()->positions_fed, 93);  // nothing was touched
  session.read(document(6), {});
  const Generation last = generate(session, 5);
  EXPECT_EQ(last.stop, StopReason::kContext);
  EXPECT_EQ(last.n_generated, 1);
  EXPECT_EQ(generate(session, 5).n_generated, 0);
}

TEST_F(SessionTest, ARefusedPromptChangesNothing) {
  Session session = this->session("knorm:budget=10%");
  session.read(document(200), {});
  const std::string text = generate(session, 1).text;
  PromptTokens bad = document(100);
  bad.document.back() = model_.hyper().n_vocab;
  error_of(ErrorCode::kInvalidArgument, [&] { session.read(bad, {}); });
  EXPECT_EQ(session.policy().budget_rows(), 20);
  EXPECT_EQ(session.sequence()->positions_fed, 200);  // the generated token still waits
  EXPECT_EQ(generate(session, 3).n_generated, 3);
}

TEST_F(SessionTest, ACancelledPromptLeavesNothingToGenerateFrom) {
  Session session = this->session("full");
  session.read(document(100), {});
  const std::atomic<bool> cancel{true};
  error_of(ErrorCode::kCancelled, [&] { session.read(document(100), {.cancel = &cancel}); });
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { generate(session, 1); })
                .find("a prompt has to be read first"),
            std::string::npos);
}

TEST_F(SessionTest, AForkGoesOnAsTheSessionWould) {
  for (const char* policy : {"full", "knorm:budget=20%"}) {
    Session session = this->session(policy);
    session.read(document(100), {});
    generate(session, 3);
    const auto fork = session.fork();
    const PromptTokens next = document(50, 2);
    const auto logits = session.read(next, {});
    EXPECT_TRUE(test::same_bits(fork->read(next, {}), logits));
    EXPECT_EQ(fork->policy().budget_rows(), session.policy().budget_rows());
    EXPECT_EQ(generate(*fork, 5).text, generate(session, 5).text);
  }
}

TEST_F(SessionTest, AForkUnderAnotherPolicyIsCutToItAtOnce) {
  Session full = session("full");
  Session cut = session("knorm:budget=20%");
  full.read(document(100), {});
  cut.read(document(100), {});
  const auto fork = full.fork(Policy::parse("knorm:budget=20%"));
  EXPECT_EQ(test::kept_positions(fork->sequence()->cache),
            test::kept_positions(cut.sequence()->cache));
  EXPECT_EQ(generate(*fork, 20).text, generate(cut, 20).text);
  EXPECT_EQ(full.sequence()->cache.rows_evicted(), 0);
}

TEST_F(SessionTest, ATrimmedSessionReadsAsBefore) {
  Session session = this->session("full");
  session.read(document(100), {});
  const std::string text = generate(session, 10).text;
  session.trim(100);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { generate(session, 1); })
                .find("a prompt has to be read first"),
            std::string::npos);
  session.trim(40);
  PromptTokens rest;
  const std::vector<model::Token> all = document(100).document;
  rest.document.assign(all.begin() + 40, all.end());
  session.read(rest, {});
  EXPECT_EQ(generate(session, 10).text, text);
}

TEST_F(SessionTest, ATrimForgetsTheDocumentsItTakesBack) {
  Session session = this->session("knorm:budget=50%");
  session.read(document(5), {});  // six rows at least, so all stay
  session.read(document(200, 2), {});
  EXPECT_EQ(session.policy().budget_rows(), 103);
  session.trim(0);
  session.read(document(40), {});
  EXPECT_EQ(session.policy().budget_rows(), 20);
}

TEST_F(SessionTest, ACancelledPromptCanBeTakenBack) {
  Session session = this->session("full");
  session.read(document(100), {});
  const std::string text =
      session.fork()
          ->generate({.n_predict = 5, .ignore_eos = true, .sampling = {.temperature = 0}}, {})
          .text;
  std::atomic<bool> cancel{false};
  error_of(ErrorCode::kCancelled, [&] {
    session.read(document(200, 2), {.progress = [&](double) { cancel = true; }, .cancel = &cancel});
  });
  session.trim(100);
  EXPECT_EQ(generate(session, 5).text, text);
}

TEST(ProtectedParts, Stay) {
  const Model model(test::write_tiny_model(), {});
  const engine::PromptTokens prompt{.before = random_tokens(6, model.hyper().n_vocab),
                                    .document = random_tokens(150, model.hyper().n_vocab, 2),
                                    .question = random_tokens(9, model.hyper().n_vocab, 3),
                                    .after = random_tokens(3, model.hyper().n_vocab, 4)};
  for (const std::string protect : {"none", "question", "template", "both"}) {
    for (const engine::EvictWhen evict :
         {engine::EvictWhen::kAfterPrompt, engine::EvictWhen::kBeforeQuestion}) {
      for (const char* policy : {"knorm:budget=40,keep=high", "h2o+adakv:budget=40",
                                 "snapkv+pyramid:budget=40,obs_window=4"}) {
        engine::SessionOptions options;
        options.evict = evict;
        options.engine = {.n_threads = 1, .n_batch = 64};
        Session session(
            model, Policy::parse(std::string(policy) + ",n_sink=1,n_recent=1,protect=" + protect),
            options);
        session.plan(prompt, 20);
        session.read(prompt, {});
        session.generate({.n_predict = 20, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
        int n_lost = 0;
        for (const auto& head : test::kept_positions(session.sequence()->cache)) {
          const auto lost = [&](int begin, int end) {
            int n = 0;
            for (int pos = begin; pos < end; ++pos) {
              n += std::count(head.begin(), head.end(), pos) == 0 ? 1 : 0;
            }
            return n;
          };
          if (protect == "template" || protect == "both") {
            EXPECT_EQ(lost(0, 6), 0) << policy;
          }
          if (protect == "question" || protect == "both") {
            EXPECT_EQ(lost(156, 168), 0) << policy;
          }
          n_lost += lost(0, 6) + lost(156, 168);
        }
        if (protect == "none") {
          EXPECT_GT(n_lost, 0) << policy;
        }
      }
    }
  }
}

TEST(ProtectedParts, ThatTheBudgetHasNoRoomForAreRefusedBeforeAnythingIsRead) {
  const Model model(test::write_tiny_model(), {});
  Session session(model, Policy::parse("knorm:budget=20,protect=question"),
                  {.order = {}, .engine = {.n_threads = 1, .n_batch = 64}});
  const engine::PromptTokens prompt{.document = random_tokens(50, model.hyper().n_vocab, 2),
                                    .question = random_tokens(30, model.hyper().n_vocab, 3)};
  const auto refusal = [&](const auto& action) {
    return test::error_of(ErrorCode::kInvalidArgument, action);
  };
  EXPECT_NE(refusal([&] { session.plan(prompt, 1); }).find("30 protected rows"), std::string::npos);
  EXPECT_NE(refusal([&] { session.read(prompt, {}); }).find("30 protected rows"),
            std::string::npos);
  const engine::PromptTokens shorter{.document = prompt.document,
                                     .question = random_tokens(5, model.hyper().n_vocab, 3)};
  EXPECT_FALSE(session.read(shorter, {}).empty());
}

}  // namespace
}  // namespace winnow
