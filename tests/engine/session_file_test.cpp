// A session from a file goes on as the one that was saved, to the bit; a file that is not as it was written is refused.

#include "engine/session_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/files.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/sealed.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::EvictWhen;
using engine::PromptTokens;
using engine::Session;
using engine::SessionOptions;
using model::Model;
using policy::Policy;
using test::error_of;
using test::random_tokens;

const std::vector<test::TinyModelOptions>& models() {
  static const std::vector<test::TinyModelOptions> all{
      {}, {.architecture = "qwen2"}, {.architecture = "phi3"}, test::windowed_model()};
  return all;
}

SessionOptions small_options(cache::RowType type = cache::RowType::kF16) {
  return {.key_type = type,
          .value_type = type,
          .evict = EvictWhen::kBeforeQuestion,
          .order = {},
          .engine = {.n_threads = 1, .n_batch = 64}};
}

PromptTokens document(const Model& model, int n, uint32_t seed = 1) {
  PromptTokens tokens{.before = {1, 2, 3},
                      .document = random_tokens(n, model.hyper().n_vocab, seed)};
  for (const model::Token token : tokens.document) {
    tokens.roles.push_back(static_cast<roles::Role>(token % roles::kRoles));
  }
  return tokens;
}

PromptTokens question(const Model& model, uint32_t seed) {
  return {.question = random_tokens(12, model.hyper().n_vocab, seed), .after = {4, 5}};
}

std::string saved(const Session& session) {
  std::string path = test::temporary_path("session");
  session.save(path);
  return path;
}

std::unique_ptr<Session> loaded(const std::string& path, const Model& model,
                                const SessionOptions& options = small_options()) {
  return std::make_unique<Session>(model, engine::load_session(path, model), options);
}

// The logits of the prompt's last token and of ten that are generated after it.
std::vector<float> answer(Session& session, const PromptTokens& prompt) {
  std::vector<float> logits = session.read(prompt, {});
  session.generate({.n_predict = 11, .ignore_eos = true, .sampling = {.temperature = 0}},
                   {.on_logits = [&](const std::vector<float>& more) {
                     logits.insert(logits.end(), more.begin(), more.end());
                   }});
  return logits;
}

TEST(SessionFile, AQuestionToAReloadedDocumentIsAnsweredAsWithoutAFile) {
  for (const test::TinyModelOptions& options : models()) {
    const Model model(test::write_tiny_model(options), {});
    for (const char* policy :
         {"full", "knorm:budget=40", "knorm:budget=15%,slack=3", "streaming:budget=40,slack=5",
          "keydiff:budget=30%", "knorm+adakv:budget=40", "keydiff+pyramid:budget=40",
          "knorm+pool:budget=40", "random:budget=20KiB", "snapkv:budget=40",
          "tova:budget=40,slack=3", "h2o:budget=40", "h2o+adakv:budget=15%,observed=true",
          "snapkv:budget=30%,obs_window=7", "expected-attention:budget=40",
          "snapkv+adakv+roles:budget=40,key=0.1", "knorm+roles:budget=60%,ban=key+ws",
          "qfilters@keysvd:budget=40,calib_tokens=20", "keydiff+rank+criticalkv:budget=19KiB"}) {
      SCOPED_TRACE(options.architecture + " " + policy);
      Session compressed(model, Policy::parse(policy), small_options());
      compressed.read(document(model, 200), {});
      const std::string path = saved(compressed);
      for (const uint32_t seed : {2, 3}) {
        Session direct(model, Policy::parse(policy), small_options());
        PromptTokens whole = document(model, 200);
        whole.question = question(model, seed).question;
        whole.after = question(model, seed).after;
        const std::vector<float> expected = answer(direct, whole);

        const auto session = loaded(path, model);
        EXPECT_TRUE(session->transcript().is_turn_open());
        const engine::Plan plan = session->plan(question(model, seed), 11);
        EXPECT_EQ(plan.kv_held_bytes, 0U);
        session->reserve(plan.max_rows);
        EXPECT_TRUE(test::same_bits(answer(*session, question(model, seed)), expected));
        EXPECT_EQ(plan.kv_peak_bytes, session->sequence()->cache.peak_bytes());
        EXPECT_EQ(test::kept_positions(session->sequence()->cache),
                  test::kept_positions(direct.sequence()->cache));
        EXPECT_EQ(session->policy().budget_rows(), direct.policy().budget_rows());
        EXPECT_EQ(session->sequence()->cache.rows_evicted(),
                  direct.sequence()->cache.rows_evicted());
        EXPECT_EQ(session->sequence()->evicted_during_prompt,
                  direct.sequence()->evicted_during_prompt);
        EXPECT_EQ(session->sequence()->evictions.count, direct.sequence()->evictions.count);
      }
    }
  }
}

TEST(SessionFile, GeneratesWithoutBeingReadOnOrReserved) {
  const Model model(test::write_tiny_model({}), {});
  Session session(model, Policy::parse("knorm:budget=40"), small_options());
  session.read(document(model, 100), {});
  const auto reloaded = loaded(saved(session), model);
  const engine::GenerateOptions options{
      .n_predict = 11, .ignore_eos = true, .sampling = {.temperature = 0}};
  EXPECT_EQ(reloaded->generate(options, {}).text, session.generate(options, {}).text);
  Session fresh(model, Policy::parse("full"), small_options());
  error_of(ErrorCode::kInvalidArgument, [&] { fresh.generate(options, {}); });
  fresh.reserve(100);  // still possible
}

TEST(SessionFile, SavedAgainItIsTheSameFile) {
  for (const test::TinyModelOptions& options : models()) {
    const Model model(test::write_tiny_model(options), {});
    std::mt19937 random(7);
    for (const char* policy :
         {"full", "knorm:budget=50", "streaming:budget=30%", "random:budget=9KiB"}) {
      for (const cache::RowType type :
           {cache::RowType::kF32, cache::RowType::kF16, cache::RowType::kBf16}) {
        Session session(model, Policy::parse(policy), small_options(type));
        const int n_turns = std::uniform_int_distribution<int>(1, 3)(random);
        for (int turn = 0; turn < n_turns; ++turn) {
          PromptTokens prompt = document(model, 80, random());
          if (turn % 2 == 1) {
            prompt.question = question(model, random()).question;
          }
          answer(session, prompt);
        }
        const std::string bytes = read_text_file(saved(session));
        const auto copy = loaded(saved(session), model);
        copy->reserve(10);  // of what the file holds there are more
        EXPECT_EQ(read_text_file(saved(*copy)), bytes);
        EXPECT_EQ(copy->shape().key_type, type);
      }
    }
  }
}

TEST(SessionFile, AnAnswerGoesOnAsIfNeverStopped) {
  const Model model(test::write_tiny_model(), {});
  const auto generate = [](Session& session, int n) {
    return session
        .generate({.n_predict = n, .ignore_eos = true, .sampling = {.temperature = 0}}, {})
        .text;
  };
  Session session(model, Policy::parse("knorm:budget=50,slack=4"), small_options());
  session.read(document(model, 100), {});
  const auto before = loaded(saved(session), model);
  std::string text = generate(session, 20);
  const auto between = loaded(saved(session), model);  // its last token waits to be fed
  EXPECT_FALSE(between->transcript().is_turn_open());
  const std::string rest = generate(session, 20);
  before->reserve(200);
  between->reserve(200);
  EXPECT_EQ(generate(*before, 40), text + rest);
  EXPECT_EQ(generate(*between, 20), rest);
}

TEST(SessionFile, ForksAndTrimsAfterLoading) {
  const Model model(test::write_tiny_model(), {});
  Session session(model, Policy::parse("full"), small_options());
  session.read(document(model, 100), {});
  const std::string path = saved(session);
  const auto expected = answer(session, question(model, 2));
  const auto copy = loaded(path, model);
  copy->reserve(300);
  const auto fork = copy->fork();
  const auto cut = copy->fork(Policy::parse("knorm:budget=40"));
  EXPECT_TRUE(test::same_bits(answer(*fork, question(model, 2)), expected));
  answer(*copy, question(model, 3));
  copy->trim(103);
  EXPECT_TRUE(test::same_bits(answer(*copy, question(model, 2)), expected));
  // The fork under another policy is saved as such.
  const auto again = loaded(saved(*cut), model);
  EXPECT_EQ(again->policy().spec(), "knorm:budget=40");
  again->reserve(300);
  EXPECT_EQ(again->sequence()->cache.longest(), 40);
  EXPECT_TRUE(
      test::same_bits(answer(*again, question(model, 2)), answer(*cut, question(model, 2))));
  const std::string gone = error_of(ErrorCode::kInvalidArgument, [&] { again->trim(50); });
  EXPECT_NE(gone.find("has lost the row"), std::string::npos) << gone;
}

TEST(SessionFile, ReadsOnlyWhatItHasNotRead) {
  const Model model(test::write_tiny_model(), {});
  for (const char* policy : {"full", "knorm:budget=30%"}) {
    SCOPED_TRACE(policy);
    Session session(model, Policy::parse(policy), small_options());
    session.read(document(model, 100), {});
    const std::string path = saved(session);
    PromptTokens whole = document(model, 100);
    whole.document.insert(whole.document.end(), 20, 9);
    whole.roles.insert(whole.roles.end(), 20, roles::Role::kProse);
    whole.question = question(model, 2).question;
    whole.after = {4};
    const auto copy = loaded(path, model);
    const PromptTokens rest = copy->rejoin(whole);
    EXPECT_TRUE(rest.before.empty());
    EXPECT_EQ(rest.document.size(), 20U);
    EXPECT_EQ(rest.question, whole.question);
    copy->read(rest, {});
    EXPECT_EQ(copy->transcript().n_document(), 120);
    EXPECT_EQ(copy->transcript().tokens, whole.all());
    // The same again: only the last token, whose logits are those that answers begin with.
    EXPECT_EQ(copy->rejoin(whole).size(), 0);
    copy->generate({.n_predict = 5, .ignore_eos = true, .sampling = {}}, {});
    if (std::string(policy) == "full") {
      EXPECT_EQ(copy->rejoin(whole).size(), 1);
    }
  }
}

TEST(SessionFile, GoesBackToWhereThePromptsPartWhereItCan) {
  const Model model(test::write_tiny_model(), {});
  PromptTokens other = document(model, 100);
  other.document[60] = (other.document[60] + 1) % model.hyper().n_vocab;
  Session full(model, Policy::parse("full"), small_options());
  full.read(document(model, 100), {});
  const auto copy = loaded(saved(full), model);
  const PromptTokens rest = copy->rejoin(other);
  EXPECT_EQ(rest.size(), 40);
  Session fresh(model, Policy::parse("full"), small_options());
  EXPECT_TRUE(test::same_bits(copy->read(rest, {}), fresh.read(other, {})));

  Session cut(model, Policy::parse("streaming:budget=40"), small_options());
  cut.read(document(model, 100), {});
  const auto refused = loaded(saved(cut), model);
  const std::string message =
      error_of(ErrorCode::kInvalidArgument, [&] { refused->rejoin(other); });
  EXPECT_NE(message.find("of the 103 positions that were read, the prompt has only the first 63"),
            std::string::npos)
      << message;
}

TEST(SessionFile, RefusesAnotherModelAndOtherRopeScaling) {
  const std::string model_path = test::write_tiny_model();
  const Model model(model_path, {});
  Session session(model, Policy::parse("full"), small_options());
  session.read(document(model, 30), {});
  const std::string path = saved(session);
  const Model other_weights(test::write_tiny_model({.seed = 2}), {});
  const std::string other =
      error_of(ErrorCode::kInvalidArgument, [&] { engine::load_session(path, other_weights); });
  EXPECT_NE(other.find("was made with another model: llama"), std::string::npos) << other;
  const Model other_family(test::write_tiny_model({.architecture = "qwen2"}), {});
  error_of(ErrorCode::kInvalidArgument, [&] { engine::load_session(path, other_family); });
  const Model scaled(model_path, {.rope = {.scale = 4}});
  const std::string rope =
      error_of(ErrorCode::kInvalidArgument, [&] { engine::load_session(path, scaled); });
  EXPECT_NE(rope.find("other rope scaling: freq_scale 1, not 0.25"), std::string::npos) << rope;
  const std::string room = error_of(ErrorCode::kInvalidArgument, [&] {
    SessionOptions options = small_options();
    options.n_ctx = 32;
    loaded(path, model, options);
  });
  EXPECT_NE(room.find("has 33 positions, the context 32"), std::string::npos) << room;
}

// Phi-3's rotation depends on how long a context may get.
TEST(SessionFile, RefusesAContextThatRotatesOtherwise) {
  const Model model(test::write_tiny_model({.architecture = "phi3",
                                            .rope_scaling = "longrope",
                                            .context_factors = true,
                                            .n_ctx_orig = 1024}),
                    {});
  const auto with_context = [](int n_ctx) {
    SessionOptions options = small_options();
    options.n_ctx = n_ctx;
    return options;
  };
  Session session(model, Policy::parse("full"), with_context(512));
  session.read(document(model, 30), {});
  const std::string path = saved(session);
  loaded(path, model, with_context(1024));
  const std::string message =
      error_of(ErrorCode::kInvalidArgument, [&] { loaded(path, model, with_context(2048)); });
  EXPECT_NE(message.find("up to 1024 positions"), std::string::npos) << message;
}

TEST(SessionFile, ThereMustBeSomethingToSave) {
  const Model model(test::write_tiny_model(), {});
  Session session(model, Policy::parse("full"), small_options());
  error_of(ErrorCode::kInvalidArgument, [&] { session.save("/dev/null"); });
  session.reserve(100);
  error_of(ErrorCode::kInvalidArgument, [&] { session.save("/dev/null"); });
  session.read(document(model, 10), {});
  const std::atomic<bool> cancel{true};
  error_of(ErrorCode::kCancelled, [&] { session.read(document(model, 10), {.cancel = &cancel}); });
  const std::string message =
      error_of(ErrorCode::kInvalidArgument, [&] { session.save("/dev/null"); });
  EXPECT_NE(message.find("half-way"), std::string::npos) << message;
  session.trim(13);
  session.save("/dev/null");
  error_of(ErrorCode::kIo, [&] { session.save("/no/such/folder/file"); });
}

class DamagedSessionFile : public ::testing::Test {
 protected:
  void SetUp() override {
    Session session(model_, Policy::parse("knorm:budget=10,n_sink=1,n_recent=2"), small_options());
    session.read(document(model_, 20), {});
    session.save(path_);
    sound_ = read_text_file(path_);
  }
  void write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }
  std::string refusal() const {
    return error_of(ErrorCode::kBadData, [&] { engine::load_session(path_, model_); });
  }

  const Model model_{test::write_tiny_model(test::smallest_model("llama", GGML_TYPE_F32)), {}};
  const std::string path_ = test::temporary_path("damaged");
  std::string sound_;
};

TEST_F(DamagedSessionFile, EveryFlippedByteIsRefused) {
  for (size_t i = 0; i < sound_.size(); ++i) {
    std::string bytes = sound_;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    write(bytes);
    EXPECT_FALSE(refusal().empty()) << "byte " << i;
  }
}

TEST_F(DamagedSessionFile, EveryOtherLengthIsRefused) {
  for (size_t n = 0; n < sound_.size(); ++n) {
    write(sound_.substr(0, n));
    EXPECT_FALSE(refusal().empty()) << n << " bytes";
  }
  write(sound_ + "\n");
  refusal();
}

// With a checksum that fits, any byte may say anything: a session, or an error, and no crash.
TEST_F(DamagedSessionFile, AnyContentIsRefusedOrRead) {
  int n_refused = 0;
  for (size_t i = 0; i + 8 < sound_.size(); ++i) {
    std::string bytes = sound_;
    bytes[i] = static_cast<char>(bytes[i] ^ (i % 3 == 0 ? 0x80 : 1 << (i % 8)));
    write(test::sealed(bytes));
    try {
      Session session(model_, engine::load_session(path_, model_), small_options());
      session.reserve(100);
      if (i % 50 == 0) {
        session.read(question(model_, 2), {});
      }
    } catch (const Error&) {
      ++n_refused;
    }
  }
  EXPECT_GT(n_refused, 400);
}

}  // namespace
}  // namespace winnow
