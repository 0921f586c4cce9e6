// What users want kept of a document becomes tokens, exactly, and stays wherever the session goes.

#include "engine/pins.h"

#include <gtest/gtest.h>

#include "engine/session.h"
#include "engine/session_file.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/models.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::DocumentPins;
using engine::EvictWhen;
using engine::PromptTokens;
using engine::Session;
using model::Model;
using policy::Policy;
using policy::PositionSpan;
using test::error_of;

std::string text_refusal(const char* text) {
  return error_of(ErrorCode::kInvalidArgument, [&] { engine::parse_text_pin(text); });
}

std::string tokens_refusal(const char* text, int n_tokens = 10) {
  return error_of(ErrorCode::kInvalidArgument,
                  [&] { engine::find_pins(n_tokens, std::vector{engine::parse_token_pin(text)}); });
}

TEST(TextPin, IsARegularExpressionAndAFloor) {
  EXPECT_EQ(engine::parse_text_pin("a+@8").regex, "a+");
  EXPECT_EQ(engine::parse_text_pin("a+@8").floor.rows, 8);
  EXPECT_EQ(engine::parse_text_pin("\\w+@\\w+").regex, "\\w+@\\w+");
  for (const char* text : {"(", "a**", "[", "\\", "(?<x", "(?=a)", "a{2000}", "\xff", "\\1"}) {
    EXPECT_NE(text_refusal(text).find("not a regular expression of RE2"), std::string::npos)
        << text;
  }
  EXPECT_NE(text_refusal("").find("is empty"), std::string::npos);
  EXPECT_NE(text_refusal("@50%").find("is empty"), std::string::npos);
  EXPECT_NE(text_refusal("a@0").find("the floor '0'"), std::string::npos);
  EXPECT_NE(text_refusal("a@101%").find("written with [@]"), std::string::npos);
}

TEST(TokenPin, IsASliceAsInPython) {
  const auto span = [](const char* text) {
    return engine::find_pins(10, std::vector{engine::parse_token_pin(text)})[0];
  };
  const auto expect = [&](const char* text, int begin, int end) {
    EXPECT_EQ(span(text).begin, begin) << text;
    EXPECT_EQ(span(text).end, end) << text;
  };
  expect("2:5", 2, 5);
  expect(":5", 0, 5);
  expect("7:", 7, 10);
  expect(":", 0, 10);
  expect("-3:", 7, 10);
  expect(":-3", 0, 7);
  expect("-10:-9", 0, 1);
  expect("0:10@3", 0, 10);
  EXPECT_EQ(span("0:10@3").n_least, 3);
  EXPECT_EQ(span("0:9@50%").n_least, 5);
}

TEST(TokenPin, ThatIsNoneIsRefused) {
  for (const char* text :
       {"", "5", "a:b", "1:2:3", "1.5:2", "0x1:2", "1 :2", "+1:2", "99999999999:", "--1:"}) {
    EXPECT_NE(tokens_refusal(text).find("a:b, a: and :b"), std::string::npos) << text;
  }
  EXPECT_NE(tokens_refusal("0:11").find("11 is beyond the 10 tokens"), std::string::npos);
  EXPECT_NE(tokens_refusal("-11:").find("allowed: -10 to 10"), std::string::npos);
  for (const char* text : {"5:5", "5:4", "10:", ":0", "-1:-1", ":-10"}) {
    EXPECT_NE(tokens_refusal(text).find("holds no token"), std::string::npos) << text;
  }
  EXPECT_NE(tokens_refusal("1:5@0").find("the floor '0'"), std::string::npos);
}

// The tokens found spell the match, and none at their ends could be left out.
void expect_found(const Model& model, const std::string& text, const std::string& regex,
                  const std::vector<std::string>& matches) {
  const PromptTokens prompt =
      engine::tokenize_prompt(model, {.document = text,
                                      .has_chat_template = false,
                                      .pins = {.texts = {engine::parse_text_pin(regex)}}});
  ASSERT_EQ(prompt.pins.size(), matches.size()) << regex;
  for (size_t i = 0; i < matches.size(); ++i) {
    const auto spelled = [&](int begin, int end) {
      std::string spelling;
      for (int t = begin; t < end; ++t) {
        spelling += model.vocabulary().piece(prompt.document[static_cast<size_t>(t)], true);
      }
      return spelling;
    };
    const PositionSpan& pin = prompt.pins[i];
    EXPECT_NE(spelled(pin.begin, pin.end).find(matches[i]), std::string::npos) << regex;
    if (pin.end - pin.begin > 1) {
      EXPECT_EQ(spelled(pin.begin + 1, pin.end).find(matches[i]), std::string::npos) << regex;
      EXPECT_EQ(spelled(pin.begin, pin.end - 1).find(matches[i]), std::string::npos) << regex;
    }
  }
}

void expect_matches(const Model& model) {
  const std::string text = "Total: 12.50 €, naïve 漢字 😀.\nTotal: 3 € and the rest.\n";
  expect_found(model, text, "[0-9.]+ €", {"12.50 €", "3 €"});
  expect_found(model, text, "漢字 😀", {"漢字 😀"});
  expect_found(model, text, "(?i)TOTAL", {"Total", "Total"});
  expect_found(model, text, "(?m)^Total: 3.*$", {"Total: 3 € and the rest."});
  expect_found(model, text, "^Total", {"Total"});
  expect_found(model, text, "(?s)Total.*",
               {"Total: 12.50 €, naïve 漢字 😀.\nTotal: 3 € and the rest."});
  expect_found(model, text, "z*", {});
  expect_found(model, text, "\\p{Han}", {"漢", "字"});
}

TEST(TextPins, FindWholeTokensInTinyModels) {
  expect_matches(Model(test::write_tiny_model(), {}));
  expect_matches(Model(test::write_tiny_model({.sentencepiece = true}), {}));
}

TEST(TextPins, FindWholeTokensInRealModels) {
  for (const char* name : {test::kSmolLm2, test::kQwen2, test::kGemma3}) {
    if (const std::optional<std::string> path = test::find_model(name)) {
      expect_matches(Model(*path, {}));
    }
  }
}

// A pattern that makes other engines overflow their stack or take exponential time.
TEST(TextPins, AreFoundInTimeAndSpace) {
  const Model model(test::write_tiny_model(), {});
  const std::string text(200000, 'a');
  const auto spans = engine::find_pins(
      model.vocabulary(), text, model.vocabulary().tokenize(text, model::SpecialText::kPlain),
      {.texts = {engine::parse_text_pin("(a*)*b|(a|aa)+$")}});
  ASSERT_EQ(spans.size(), 1U);
}

class PinnedTokens : public ::testing::Test {
 protected:
  PromptTokens prompt(int n) const {
    PromptTokens tokens{.before = test::random_tokens(5, model_.hyper().n_vocab, 1),
                        .document = test::random_tokens(n, model_.hyper().n_vocab, 2),
                        .question = test::random_tokens(8, model_.hyper().n_vocab, 3),
                        .after = test::random_tokens(3, model_.hyper().n_vocab, 4)};
    tokens.pins = {{20, 26}, {50, 70, 4}};
    return tokens;
  }
  Session session(const std::string& policy, EvictWhen evict) const {
    return Session(model_, Policy::parse(policy),
                   {.evict = evict, .order = {}, .engine = {.n_threads = 1, .n_batch = 32}});
  }
  static void generate(Session& session) {
    session.generate({.n_predict = 30, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
  }
  // Positions 25 … 30 are there, and 4 of 55 … 74.
  static void expect_kept(const Session& session, const std::string& where) {
    for (const auto& head : test::kept_positions(session.sequence()->cache)) {
      const auto n_between = [&](int begin, int end) {
        return std::ranges::count_if(head, [&](int pos) { return pos >= begin && pos < end; });
      };
      EXPECT_EQ(n_between(25, 31), 6) << where;
      EXPECT_GE(n_between(55, 75), 4) << where;
    }
  }

  const Model model_{test::write_tiny_model(), {}};
};

TEST_F(PinnedTokens, StayWheneverRowsGo) {
  for (const EvictWhen evict :
       {EvictWhen::kAfterPrompt, EvictWhen::kBeforeQuestion, EvictWhen::kPerChunk}) {
    for (const char* policy : {"knorm:budget=24,n_sink=1,n_recent=2,keep=high",
                               "streaming:budget=24,n_sink=1,n_recent=2",
                               "snapkv+chunkkv+adakv:budget=24,n_sink=1,n_recent=2,obs_window=4",
                               "h2o+pyramid:budget=24,n_sink=1,n_recent=2",
                               "knorm+pool:budget=20%,n_sink=1,n_recent=2"}) {
      const std::string where = std::string(policy) + " " + evict_when_name(evict);
      Session session = this->session(policy, evict);
      session.plan(prompt(100), 30);
      session.read(prompt(100), {});
      expect_kept(session, where);
      generate(session);
      expect_kept(session, where);

      const std::unique_ptr<Session> fork = session.fork();
      fork->read({.document = test::random_tokens(40, model_.hyper().n_vocab, 5)}, {});
      generate(*fork);
      expect_kept(*fork, where + " fork");
      const std::unique_ptr<Session> other =
          session.fork(Policy::parse("streaming:budget=16,n_sink=0,n_recent=2"));
      expect_kept(*other, where + " fork to another policy");

      const std::string path = test::temporary_path("pins.cache");
      session.save(path);
      Session loaded(model_, engine::load_session(path, model_),
                     {.evict = evict, .order = {}, .engine = {.n_threads = 1, .n_batch = 32}});
      loaded.read({.document = test::random_tokens(40, model_.hyper().n_vocab, 5)}, {});
      generate(loaded);
      expect_kept(loaded, where + " cache file");
    }
  }
}

TEST_F(PinnedTokens, StayAfterATrimThatLeavesThem) {
  Session session = this->session("knorm:budget=60,n_sink=1,n_recent=2", EvictWhen::kAfterPrompt);
  PromptTokens first = prompt(40);
  first.pins = {{20, 26}, {30, 40, 3}};
  session.read(first, {});  // 56 of 60 rows
  session.trim(40);         // inside the second span
  session.read({.document = test::random_tokens(200, model_.hyper().n_vocab, 6)}, {});
  generate(session);
  for (const auto& head : test::kept_positions(session.sequence()->cache)) {
    EXPECT_EQ(std::ranges::count_if(head, [](int pos) { return pos >= 25 && pos < 31; }), 6);
    EXPECT_GE(std::ranges::count_if(head, [](int pos) { return pos >= 35 && pos < 40; }), 3);
  }
}

// A prompt that begins as what was read is read from where the two part; its pins are where they were.
TEST_F(PinnedTokens, AreCountedFromTheDocumentsBeginInTheRestOfAPrompt) {
  const PromptTokens whole = prompt(100);
  for (const int n : {0, 3, 5, 60, 105, 108, 114}) {
    const PromptTokens rest = whole.from(n);
    const auto pins = rest.at(n).pins;
    ASSERT_EQ(pins.size(), 2U);
    EXPECT_EQ(pins[0].begin, 25) << n;
    EXPECT_EQ(pins[1].end, 75) << n;
  }
}

TEST_F(PinnedTokens, ThatTheBudgetHasNoRoomForAreRefused) {
  const auto refusal = [&](const char* policy) {
    Session session = this->session(policy, EvictWhen::kAfterPrompt);
    return error_of(ErrorCode::kInvalidArgument, [&] { session.plan(prompt(100), 1); });
  };
  // 6 + 4 rows.
  EXPECT_NE(refusal("knorm:budget=13,n_sink=1,n_recent=2")
                .find("10 protected rows of the prompt and n_recent 2 leave nothing to choose in a "
                      "budget of 13 rows (at least 14 are needed"),
            std::string::npos);
  this->session("knorm:budget=14,n_sink=1,n_recent=2", EvictWhen::kAfterPrompt)
      .plan(prompt(100), 1);
  // A percentage is of the document, and spans of the document do not enlarge it.
  PromptTokens document = prompt(100);
  document.before = document.question = document.after = {};
  Session session = this->session("knorm:budget=13%,n_sink=1,n_recent=2", EvictWhen::kAfterPrompt);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { session.plan(document, 1); })
                .find("a budget of 13 rows"),
            std::string::npos);
  EXPECT_NE(refusal("full").find("keeps every row"), std::string::npos);
}

TEST(Conversation, TurnsStayByRole) {
  const Model model(test::write_tiny_model(), {});
  PromptTokens first{.before = test::random_tokens(4, model.hyper().n_vocab, 1),
                     .system = test::random_tokens(6, model.hyper().n_vocab, 2),
                     .opening = test::random_tokens(3, model.hyper().n_vocab, 3),
                     .document = test::random_tokens(20, model.hyper().n_vocab, 4),
                     .after = test::random_tokens(2, model.hyper().n_vocab, 5)};
  const PromptTokens second{.before = test::random_tokens(4, model.hyper().n_vocab, 6),
                            .document = test::random_tokens(60, model.hyper().n_vocab, 7),
                            .after = test::random_tokens(2, model.hyper().n_vocab, 8)};
  struct Case {
    const char* protect;
    int begin;
    int end;
    int n_least;
  };
  // The first prompt takes 0 … 34, its answer 35 … 44, the second prompt 45 … 110.
  for (const Case& each : {Case{"system", 4, 10, 6}, Case{"template", 0, 13, 13},
                           Case{"assistant", 35, 45, 10}, Case{"assistant@4", 35, 45, 4},
                           Case{"user@10%", 13, 35, 3}, Case{"question", 109, 111, 2}}) {
    Session session(
        model,
        Policy::parse(std::string("knorm:budget=60,n_sink=0,n_recent=1,protect=") + each.protect),
        {.order = {}, .engine = {.n_threads = 1, .n_batch = 64}});
    session.read(first, {});
    session.generate({.n_predict = 10, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
    session.read(second, {});
    const auto fork = session.fork(Policy::parse(
        std::string("streaming:budget=30,n_sink=0,n_recent=1,protect=") + each.protect));
    for (const auto& head : test::kept_positions(fork->sequence()->cache)) {
      EXPECT_GE(
          std::ranges::count_if(head, [&](int pos) { return pos >= each.begin && pos < each.end; }),
          each.n_least)
          << each.protect;
      EXPECT_EQ(head.size(), 30U);
    }
  }
}

TEST(SystemMessage, StandsInTheTemplateBeforeTheUsersText) {
  const Model model(test::write_tiny_model(), {});
  const engine::PromptText text{.system = "Be brief.\n",
                                .document = "the world",
                                .question = "why",
                                .chat_template = "chatml"};
  const PromptTokens prompt = engine::tokenize_prompt(model, text);
  const auto spelled = [&](const std::vector<model::Token>& tokens) {
    std::string spelling;
    for (const model::Token token : tokens) {
      spelling += model.vocabulary().piece(token, true);
    }
    return spelling;
  };
  EXPECT_EQ(spelled(prompt.system), "Be brief.");
  EXPECT_EQ(
      spelled(prompt.all()),
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nthe world\n\nwhy<|im_end|>\n"
      "<|im_start|>assistant\n");
  // Gemma's template has no place of its own for it.
  engine::PromptText gemma = text;
  gemma.chat_template = "gemma";
  EXPECT_NE(spelled(engine::tokenize_prompt(model, gemma).all()).find("user\nBe brief.\n\nthe"),
            std::string::npos);
}

TEST(SystemMessage, WithoutAPlaceIsRefused) {
  const Model model(test::write_tiny_model(), {});
  const auto refusal = [&](engine::PromptText text) {
    text.system = text.system.value_or("Be brief.");
    text.question = "why";
    return error_of(ErrorCode::kInvalidArgument, [&] { engine::tokenize_prompt(model, text); });
  };
  EXPECT_NE(refusal({.has_chat_template = false}).find("--no-chat leaves it no place"),
            std::string::npos);
  EXPECT_NE(refusal({.chat_template = "chatml", .is_first = false}).find("a later one"),
            std::string::npos);
  EXPECT_NE(refusal({.system = " \n", .chat_template = "chatml"}).find("is empty"),
            std::string::npos);
}

}  // namespace
}  // namespace winnow
