// The public sessions: what they promise, on tiny models, and what they refuse.

#include "winnow/session.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "engine/session.h"
#include "gguf.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using test::error_of;

constexpr const char* kText =
    "The library opens at nine, and the password of the archive is 4711. ";

GenerateOptions greedy(int n_predict) {
  return {.n_predict = n_predict, .ignore_eos = true, .temperature = 0};
}

// What a message must contain.
void expect_refused(ErrorCode code, const std::vector<std::string>& parts,
                    const std::function<void()>& action) {
  const std::string message = error_of(code, action);
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

class PublicSession : public ::testing::Test {
 protected:
  Session session(const char* policy, SessionOptions options = {}) const {
    options.n_threads = 1;
    options.n_batch = 32;
    return Session(model_, Policy::parse(policy), options);
  }
  static std::string document(int n_times) {
    std::string text;
    for (int i = 0; i < n_times; ++i) {
      text += kText;
    }
    return text;
  }

  Model model_{test::write_tiny_model()};
};

TEST_F(PublicSession, SaysWhatTheModelIs) {
  const ModelInfo info = model_.info();
  EXPECT_EQ(info.family, "llama");
  EXPECT_EQ(info.n_layers, 2);
  EXPECT_EQ(info.n_kv_heads, 2);
  EXPECT_EQ(info.head_dim, 16);
  EXPECT_EQ(info.n_ctx_train, 4096);
  EXPECT_TRUE(info.has_chat_template);
  EXPECT_GT(info.mapped_bytes, 0U);
  EXPECT_EQ(info.expanded_bytes, 0U);
  const Model expanded(test::write_tiny_model(), {.weights = "f16", .n_threads = 1});
  EXPECT_GT(expanded.info().expanded_bytes, 0U);
}

TEST_F(PublicSession, TokensAreTheTextTheyCameFrom) {
  EXPECT_EQ(model_.text_of(model_.tokenize(kText)), kText);
  EXPECT_EQ(model_.text_of({}), "");
}

TEST_F(PublicSession, StreamsWhatItReturns) {
  Session session = this->session("full");
  session.feed_turn({.document = document(5), .question = "Why?"});
  std::string streamed;
  GenerateOptions options = greedy(12);
  options.on_text = [&](const std::string& text) { streamed += text; };
  const Generation answer = session.generate(options);
  EXPECT_EQ(answer.text, streamed);
  EXPECT_EQ(answer.n_generated, 12);
  EXPECT_EQ(answer.stop, StopReason::kLength);
}

TEST_F(PublicSession, CountsWhatABudgetDoes) {
  Session session = this->session("knorm:budget=64");
  double last = 0;
  session.feed_turn({.document = document(20), .question = "Why?"},
                    {.progress = [&](double fraction) { last = fraction; }});
  EXPECT_EQ(last, 1);
  session.generate(greedy(10));
  const Statistics statistics = session.statistics();
  EXPECT_EQ(statistics.kept_rows, std::vector(2, std::vector(2, 64)));
  EXPECT_EQ(statistics.rows_evicted, 4 * (statistics.positions_fed - 64));
  EXPECT_EQ(statistics.bytes_now * static_cast<size_t>(statistics.positions_fed),
            statistics.bytes_full * 64);
  EXPECT_GT(statistics.bytes_peak, statistics.bytes_now);
  EXPECT_LT(statistics.bytes_peak, statistics.bytes_full);
  EXPECT_GE(statistics.bytes_committed, statistics.bytes_now);
  EXPECT_GT(statistics.compute_bytes, 0U);
  EXPECT_EQ(statistics.n_evictions, 10);  // the prompt, and every token that was fed
  EXPECT_GT(statistics.evictions_ms, 0);
  EXPECT_FALSE(statistics.evicted_during_prompt);
  EXPECT_EQ(session.budget_rows(), 64);
  EXPECT_EQ(session.policy(), "knorm:budget=64");
  const std::vector<int> kept = session.kept_positions(1, 0);
  EXPECT_EQ(kept.size(), 64U);
  EXPECT_EQ(kept.back(), statistics.positions_fed - 1);
}

TEST_F(PublicSession, ADocumentsRolesSayWhatStays) {
  const Turn turn{.document = R"({"a": "the world", "b": [1, 2], "c": "in"})", .question = "Why?"};
  Session all = this->session("full");
  all.feed_turn(turn);
  Session banned = this->session("knorm+roles:budget=500,n_sink=0,n_recent=0,ban=key");
  banned.feed_turn(turn);
  EXPECT_LT(banned.statistics().kept_rows[0][0], all.statistics().kept_rows[0][0]);
  Turn unlabelled = turn;
  unlabelled.roles = "none";
  Session unbanned = this->session("knorm+roles:budget=500,n_sink=0,n_recent=0,ban=key");
  unbanned.feed_turn(unlabelled);
  EXPECT_EQ(unbanned.statistics().kept_rows, all.statistics().kept_rows);
  unlabelled.roles = "jsn";
  Session refused = this->session("full");
  EXPECT_THROW(refused.feed_turn(unlabelled), Error);
}

TEST_F(PublicSession, TheDefaultIsToKeepEverything) {
  Session session(model_, Policy(), {.n_threads = 1});
  session.feed_text(document(3));
  EXPECT_EQ(session.policy(), "full");
  EXPECT_EQ(session.budget_rows(), std::nullopt);
  EXPECT_EQ(session.statistics().rows_evicted, 0);
  EXPECT_EQ(session.statistics().bytes_now, session.statistics().bytes_full);
}

// A turn in two parts is the turn, if it is cut between them as well.
TEST_F(PublicSession, ADocumentAndItsQuestionAreATurn) {
  Session whole = session("knorm:budget=20%", {.evict = "before-question"});
  Session parts = session("knorm:budget=20%");
  whole.feed_turn({.document = document(20), .question = "Why?"});
  parts.feed_document(document(20));
  parts.feed_question("Why?");
  EXPECT_EQ(parts.generate(greedy(10)).text, whole.generate(greedy(10)).text);
  EXPECT_EQ(parts.kept_positions(0, 1), whole.kept_positions(0, 1));
  EXPECT_TRUE(whole.statistics().evicted_during_prompt);
  EXPECT_TRUE(parts.statistics().evicted_during_prompt);
}

TEST_F(PublicSession, TextIsItsTokens) {
  Session text = session("full");
  Session tokens = session("full");
  text.feed_text(kText);
  tokens.feed_tokens(model_.tokenize(kText));
  EXPECT_EQ(text.statistics().positions_fed, tokens.statistics().positions_fed);
  EXPECT_EQ(text.generate(greedy(10)).text, tokens.generate(greedy(10)).text);
}

TEST_F(PublicSession, ALaterTurnEndsTheAnswer) {
  Session session = this->session("full", {.chat_template = "vicuna"});
  Session by_hand = this->session("full");
  session.feed_turn({.question = "Why?"});
  by_hand.feed_text("USER: Why?\nASSISTANT:");
  EXPECT_EQ(session.generate(greedy(5)).text, by_hand.generate(greedy(5)).text);
  const int n_answered = session.statistics().positions_fed + 1;  // the last token waits
  session.feed_turn({.question = "When?"});
  const engine::PromptTokens turn =
      engine::tokenize_prompt(model::Model(test::write_tiny_model(), {}),
                              {.question = "When?", .chat_template = "vicuna", .is_first = false});
  EXPECT_EQ(session.statistics().positions_fed, n_answered + turn.size());
  by_hand.feed_tokens(turn.all());
  EXPECT_EQ(session.generate(greedy(5)).text, by_hand.generate(greedy(5)).text);
}

TEST_F(PublicSession, OneDocumentAnswersManyQuestions) {
  Session session = this->session("knorm:budget=64");
  session.feed_document(document(20));
  Session first = session.fork();
  Session second = session.fork();
  first.feed_question("Why?");
  second.feed_question("Why?");
  const std::string answer = first.generate(greedy(10)).text;
  EXPECT_EQ(second.generate(greedy(10)).text, answer);
  session.feed_question("Why?");
  EXPECT_EQ(session.generate(greedy(10)).text, answer);
}

TEST_F(PublicSession, ADocumentFromAFileAnswersAsTheSession) {
  const SessionOptions options{.key_type = "f32", .chat_template = "vicuna"};
  Session session = this->session("knorm:budget=30%", options);
  session.feed_document(document(20));
  const std::string path = test::temporary_path("document.cache");
  session.save(path);
  Session copy =
      Session::load(model_, path, {.n_threads = 1});  // types and template are the file's
  EXPECT_EQ(copy.policy(), "knorm:budget=30%");
  EXPECT_EQ(copy.budget_rows(), session.budget_rows());
  EXPECT_EQ(copy.statistics().bytes_now, session.statistics().bytes_now);
  for (Session* const each : {&session, &copy}) {
    each->feed_question("Why?");
  }
  const std::string answer = session.generate(greedy(10)).text;
  EXPECT_EQ(copy.generate(greedy(10)).text, answer);
  EXPECT_EQ(copy.kept_positions(1, 1), session.kept_positions(1, 1));
  for (Session* const each : {&session, &copy}) {
    each->feed_turn({.question = "And then?"});
  }
  EXPECT_EQ(copy.generate(greedy(10)).text, session.generate(greedy(10)).text);
}

TEST_F(PublicSession, RefusesFilesThatAreNone) {
  const std::string path = test::temporary_path("no.cache");
  expect_refused(ErrorCode::kInvalidArgument, {"no prompt was read"},
                 [&] { session("full").save(path); });
  expect_refused(ErrorCode::kNotFound, {path}, [&] { Session::load(model_, path); });
  std::ofstream(path) << "nothing like one";
  expect_refused(ErrorCode::kBadData, {"is not a cache file"},
                 [&] { Session::load(model_, path); });
}

TEST_F(PublicSession, AForkMayHaveAnotherPolicy) {
  Session full = session("full");
  Session streaming = session("streaming:budget=40");
  full.feed_text(document(20));
  streaming.feed_text(document(20));
  Session fork = full.fork(Policy::parse("streaming:budget=40"));
  EXPECT_EQ(fork.policy(), "streaming:budget=40");
  EXPECT_EQ(fork.kept_positions(1, 1), streaming.kept_positions(1, 1));
  EXPECT_EQ(fork.generate(greedy(10)).text, streaming.generate(greedy(10)).text);
  EXPECT_LT(fork.statistics().bytes_now, full.statistics().bytes_now);
}

TEST_F(PublicSession, ANewSessionCanBeForked) {
  for (const char* policy : {"full", "knorm:budget=20%"}) {
    const Session session = this->session(policy);
    Session same = session.fork();
    Session other = session.fork(Policy::parse("knorm:budget=50%"));
    for (Session* const fork : {&same, &other}) {
      fork->feed_text(document(5));
      EXPECT_EQ(fork->generate(greedy(3)).n_generated, 3);
    }
  }
}

TEST_F(PublicSession, TrimsToAskAgain) {
  Session session = this->session("full");
  session.feed_document(document(10));
  const int n_document = session.statistics().positions_fed;
  session.feed_question("Why?");
  const std::string answer = session.generate(greedy(10)).text;
  session.trim(n_document);
  EXPECT_EQ(session.statistics().positions_fed, n_document);
  expect_refused(ErrorCode::kInvalidArgument, {"has to be read"},
                 [&] { session.generate(greedy(1)); });
  session.feed_question("Why?");
  EXPECT_EQ(session.generate(greedy(10)).text, answer);
  expect_refused(ErrorCode::kInvalidArgument, {"-1"}, [&] { session.trim(-1); });
  expect_refused(ErrorCode::kInvalidArgument, {"100000"}, [&] { session.trim(100000); });
}

TEST_F(PublicSession, TrimRefusesWhatIsGone) {
  Session session = this->session("streaming:budget=40");
  session.feed_text(document(20));
  const int n_fed = session.statistics().positions_fed;
  expect_refused(ErrorCode::kInvalidArgument, {"lost"}, [&] { session.trim(n_fed - 100); });
  EXPECT_EQ(session.generate(greedy(3)).n_generated, 3);  // nothing was changed
}

TEST_F(PublicSession, SeveralPoliciesShareAModel) {
  std::vector<std::string> answers(3);
  std::vector<std::string> alone(3);
  const std::vector<const char*> policies{"full", "knorm:budget=64", "streaming:budget=40"};
  for (size_t i = 0; i < 3; ++i) {
    Session session = this->session(policies[i]);
    session.feed_text(document(10));
    alone[i] = session.generate(greedy(20)).text;
  }
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        Session session = this->session(policies[i]);
        session.feed_text(document(10));
        answers[i] = session.generate(greedy(20)).text;
      });
    }
  }
  EXPECT_EQ(answers, alone);
}

TEST_F(PublicSession, OutlivesTheModelItWasMadeWith) {
  auto model = std::make_unique<Model>(test::write_tiny_model());
  Session session(*model, Policy(), {.n_threads = 1});
  model.reset();
  session.feed_text(kText);
  EXPECT_EQ(session.generate(greedy(3)).n_generated, 3);
}

TEST_F(PublicSession, ACancelledAnswerCanBeGoneOnWith) {
  Session whole = session("knorm:budget=64");
  Session session = this->session("knorm:budget=64");
  whole.feed_text(document(10));
  session.feed_text(document(10));
  std::atomic<bool> cancel{false};
  GenerateOptions options = greedy(20);
  options.on_text = [&, n = 0](const std::string&) mutable { cancel = ++n == 7; };
  options.cancel = &cancel;
  const Generation first = session.generate(options);
  EXPECT_EQ(first.stop, StopReason::kCancelled);
  EXPECT_EQ(first.n_generated, 7);
  EXPECT_EQ(first.text + session.generate(greedy(13)).text, whole.generate(greedy(20)).text);
}

TEST_F(PublicSession, ACallbackMayThrow) {
  Session whole = session("full");
  Session session = this->session("full");
  whole.feed_text(document(3));
  session.feed_text(document(3));
  std::string text;
  int n_tokens = 0;
  GenerateOptions options = greedy(20);
  options.on_text = [&](const std::string& piece) {
    text += piece;
    if (++n_tokens == 4) {
      throw std::runtime_error("enough");
    }
  };
  EXPECT_THROW(session.generate(options), std::runtime_error);
  text += session.generate(greedy(5)).text;
  EXPECT_EQ(text, whole.generate(greedy(n_tokens + 5)).text);
}

TEST_F(PublicSession, ItsOwnCallbacksCannotChangeIt) {
  Session whole = session("full");
  Session session = this->session("full");
  const auto refuse_all = [&] {
    const std::vector<std::string> parts{"callbacks may not change it"};
    expect_refused(ErrorCode::kInvalidArgument, parts, [&] { session.feed_text("x"); });
    expect_refused(ErrorCode::kInvalidArgument, parts, [&] { session.generate(greedy(1)); });
    expect_refused(ErrorCode::kInvalidArgument, parts, [&] { session.trim(0); });
  };
  whole.feed_text(document(3));
  session.feed_text(document(3), {.progress = [&](double /*fraction*/) { refuse_all(); }});
  std::string of_forks;
  GenerateOptions options = greedy(5);
  options.on_text = [&](const std::string& text) {
    refuse_all();
    of_forks = of_forks.empty() ? text + session.fork().generate(greedy(4)).text : of_forks;
  };
  const std::string answer = whole.generate(greedy(5)).text;
  EXPECT_EQ(session.generate(options).text, answer);
  EXPECT_EQ(of_forks, answer);
  session.trim(0);  // afterwards all is allowed
  EXPECT_EQ(session.statistics().positions_fed, 0);
}

TEST_F(PublicSession, ACancelledFeedLeavesOnlyTheWayBack) {
  Session session = this->session("full");
  session.feed_text(document(3));
  const int n_fed = session.statistics().positions_fed;
  const std::string answer = session.fork().generate(greedy(5)).text;
  std::atomic<bool> cancel{false};
  expect_refused(ErrorCode::kCancelled, {}, [&] {
    session.feed_text(document(20),
                      {.progress = [&](double) { cancel = true; }, .cancel = &cancel});
  });
  EXPECT_EQ(session.statistics().positions_fed, n_fed);
  expect_refused(ErrorCode::kInvalidArgument, {"cancelled"}, [&] { session.feed_text(kText); });
  expect_refused(ErrorCode::kInvalidArgument, {"cancelled"}, [&] { session.fork(); });
  expect_refused(ErrorCode::kInvalidArgument, {"read first"}, [&] { session.generate(); });
  session.trim(n_fed);
  EXPECT_EQ(session.generate(greedy(5)).text, answer);
}

TEST_F(PublicSession, EndsWhereTheContextEnds) {
  Session session = this->session("full", {.n_ctx = 64});
  EXPECT_EQ(session.n_ctx(), 64);
  expect_refused(ErrorCode::kInvalidArgument, {"the context 64"},
                 [&] { session.feed_text(document(20)); });
  session.feed_text(kText);
  const Generation answer = session.generate(greedy(-1));
  EXPECT_EQ(answer.stop, StopReason::kContext);
  EXPECT_EQ(session.statistics().positions_fed, 64);
  expect_refused(ErrorCode::kInvalidArgument, {"the context 64", "taken"},
                 [&] { session.feed_text("x"); });
}

TEST_F(PublicSession, RefusesModelsThatAreNone) {
  expect_refused(ErrorCode::kNotFound, {"/no/such/model.gguf"},
                 [] { Model("/no/such/model.gguf"); });
  const std::string path = test::temporary_path("text.gguf");
  std::ofstream(path) << "no model at all";
  expect_refused(ErrorCode::kBadData, {path}, [&] { Model{path}; });
  const std::string tiny = test::write_tiny_model();
  expect_refused(ErrorCode::kInvalidArgument, {"q4_0", "bf16"},
                 [&] { Model(tiny, {.weights = "q4_0"}); });
  expect_refused(ErrorCode::kInvalidArgument, {"0 threads", "512"},
                 [&] { Model(tiny, {.n_threads = 0}); });
  expect_refused(ErrorCode::kInvalidArgument, {"token -1"},
                 [&] { model_.text_of(std::vector<Token>{-1}); });
  expect_refused(ErrorCode::kBadData, {"UTF-8"}, [&] { model_.tokenize("\xff"); });
}

TEST_F(PublicSession, RefusesPoliciesThatAreNone) {
  expect_refused(ErrorCode::kInvalidArgument, {"knorn", "knorm"},
                 [] { Policy::parse("knorn:budget=64"); });
  expect_refused(ErrorCode::kInvalidArgument, {"budget"}, [] { Policy::parse("knorm"); });
  expect_refused(ErrorCode::kInvalidArgument, {"full"}, [] { Policy::parse("full", "64"); });
  EXPECT_EQ(Policy::parse("knorm", "64").spec(), "knorm:budget=64");
  // A megabyte is a row and more, a byte is none.
  Session session = this->session("knorm:budget=0.001KiB");
  expect_refused(ErrorCode::kInvalidArgument, {"budget"}, [&] { session.feed_text(kText); });
}

TEST_F(PublicSession, RefusesOptionsThatAreNotAllowed) {
  const auto refuse = [&](const SessionOptions& options, const std::vector<std::string>& parts) {
    expect_refused(ErrorCode::kInvalidArgument, parts, [&] { Session(model_, Policy(), options); });
  };
  refuse({.key_type = "q8_0"}, {"q8_0", "bf16"});
  refuse({.value_type = ""}, {"bf16"});
  refuse({.n_ctx = 4097}, {"4097", "4096"});
  refuse({.n_ctx = -1}, {"n_ctx is -1"});
  refuse({.n_batch = 0}, {"n_batch is 0"});
  refuse({.n_threads = -2}, {"-2 threads"});
  refuse({.n_threads = 513}, {"513 threads"});
  refuse({.evict = "never"}, {"never", "per-chunk"});
  refuse({.evict = "legacy-order"}, {"--legacy-order", "evicts nothing"});
  refuse({.prefill = "none"}, {"none", "layer-major"});
  refuse({.evict = "per-chunk", .prefill = "layer-major"}, {"chunk-major"});
}

TEST_F(PublicSession, RefusesSamplingThatIsNotAllowed) {
  Session session = this->session("full");
  session.feed_text(kText);
  const auto refuse = [&](const GenerateOptions& options, const std::vector<std::string>& parts) {
    expect_refused(ErrorCode::kInvalidArgument, parts, [&] { session.generate(options); });
  };
  refuse({.n_predict = -2}, {"n_predict is -2"});
  refuse({.temperature = -1}, {"temp is -1", "0 to 100"});
  refuse({.temperature = std::numeric_limits<float>::quiet_NaN()}, {"temp is nan"});
  refuse({.top_k = -1}, {"top-k is -1"});
  refuse({.top_p = 1.5F}, {"top-p is 1.5", "0 to 1"});
  refuse({.min_p = -0.1F}, {"min-p is -0.1"});
  refuse({.seed = -2}, {"seed is -2"});
  refuse({.seed = int64_t{1} << 32}, {"seed is 4294967296"});
}

TEST_F(PublicSession, RefusesWhatCannotBeFed) {
  Session session = this->session("full");
  const auto refuse = [&](ErrorCode code, const std::vector<std::string>& parts,
                          const std::function<void()>& feed) {
    expect_refused(code, parts, feed);
    EXPECT_EQ(session.statistics().positions_fed, 0);
  };
  refuse(ErrorCode::kInvalidArgument, {"read first"}, [&] { session.generate(); });
  refuse(ErrorCode::kInvalidArgument, {"empty"}, [&] { session.feed_text(""); });
  refuse(ErrorCode::kInvalidArgument, {"empty"}, [&] { session.feed_tokens({}); });
  refuse(ErrorCode::kInvalidArgument, {"no prompt"}, [&] { session.feed_turn({}); });
  refuse(ErrorCode::kInvalidArgument, {"document", "empty"}, [&] { session.feed_document(" "); });
  refuse(ErrorCode::kInvalidArgument, {"nothing was fed"}, [&] { session.feed_question("Why?"); });
  refuse(ErrorCode::kBadData, {"UTF-8"}, [&] { session.feed_text("a\xff"); });
  refuse(ErrorCode::kBadData, {"UTF-8"}, [&] { session.feed_document("a\xff"); });
  refuse(ErrorCode::kInvalidArgument, {"not in the vocabulary"}, [&] {
    session.feed_tokens(std::vector<Token>{1, 1 << 30});
  });
  Session read = this->session("full");
  read.feed_document(kText);
  expect_refused(ErrorCode::kInvalidArgument, {"empty"}, [&] { read.feed_question("\n"); });
  expect_refused(ErrorCode::kInvalidArgument, {"layer is 2"},
                 [&] { session.kept_positions(2, 0); });
  expect_refused(ErrorCode::kInvalidArgument, {"kv_head is -1"},
                 [&] { session.kept_positions(0, -1); });
  Session unknown = this->session("full", {.chat_template = "no such template"});
  expect_refused(ErrorCode::kUnsupported, {"no such template"},
                 [&] { unknown.feed_turn({.question = "Why?"}); });
}

// What the program does without flags.
TEST_F(PublicSession, HasTheProgramsDefaults) {
  const GenerateOptions options;
  const engine::GenerateOptions ours;
  EXPECT_EQ(options.n_predict, ours.n_predict);
  EXPECT_EQ(options.ignore_eos, ours.ignore_eos);
  EXPECT_EQ(options.temperature, ours.sampling.temperature);
  EXPECT_EQ(options.top_k, ours.sampling.top_k);
  EXPECT_EQ(options.top_p, ours.sampling.top_p);
  EXPECT_EQ(options.min_p, ours.sampling.min_p);
  EXPECT_EQ(options.seed, ours.sampling.seed);
  // Not the program's: it chooses by the prompt, which is not known when a model is loaded.
  EXPECT_EQ(ModelOptions{}.weights, model::weight_option_name(model::ModelOptions{}.weights));
  const SessionOptions session;
  const engine::SessionOptions our_session;
  EXPECT_EQ(session.key_type, cache::row_type_name(our_session.key_type));
  EXPECT_EQ(session.value_type, cache::row_type_name(our_session.value_type));
  EXPECT_EQ(session.n_ctx, our_session.n_ctx);
  EXPECT_EQ(session.n_batch, our_session.engine.n_batch);
  EXPECT_EQ(session.evict, engine::evict_when_name(our_session.evict));
  EXPECT_EQ(session.allow_beyond_context, our_session.allow_beyond_context);
}

}  // namespace
}  // namespace winnow
