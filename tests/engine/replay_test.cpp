// Replays: what they find of rows is the attention that plain loops find, and nothing else of them stays.

#include "engine/replay.h"
#include "engine/replay_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/batch.h"
#include "engine/device_runner.h"
#include "engine/session.h"
#include "engine/session_file.h"
#include "kernels/append.h"
#include "oracle/attention_oracle.h"
#include "policy/golden_fixture.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/random_rows.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::EvictWhen;
using engine::PromptTokens;
using engine::ReplayScores;
using engine::Session;
using model::Model;
using model::Token;
using policy::Policy;
using test::error_of;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// --- what is found, without a model

struct Case {
  int n_layers, n_heads, n_kv_heads, head_dim, n_embd;
  cache::RowType type;
  ReplayScores::Part part;
  std::vector<float> keys, values, queries, inputs;  // per layer and token
  policy::TinyOutputWeights weights;

  int n_rows() const { return part.first_pos + part.n_tokens; }
  size_t dim() const { return static_cast<size_t>(head_dim); }
  kernels::AttendShape attention() const {
    return {.n_heads = n_heads,
            .n_kv_heads = n_kv_heads,
            .head_dim = head_dim,
            .scale = 1.0F / std::sqrt(static_cast<float>(head_dim))};
  }
  // Of a token of all layers [n_layers, n_tokens, n_heads, head_dim].
  const float* query(int layer, int token, int head) const {
    return queries.data() +
           static_cast<size_t>((layer * part.n_tokens + token) * n_heads + head) * dim();
  }
};

cache::Cache empty_cache(const Case& c) {
  return cache::Cache({.n_layers = c.n_layers,
                       .n_kv_heads = c.n_kv_heads,
                       .head_dim = c.head_dim,
                       .key_type = c.type,
                       .value_type = c.type,
                       .max_rows = c.n_rows(),
                       .stores_scores = true,
                       .score_kind = cache::StaticScore::kReplay});
}

// Rows [first, first + n) of all layers; keys and values are [n_layers, n_kv_heads, n_rows, head_dim].
void append(const Case& c, int first, int n, cache::Cache& cache) {
  for (int layer = 0; layer < c.n_layers; ++layer) {
    for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
      const size_t at =
          static_cast<size_t>((layer * c.n_kv_heads + kv_head) * c.n_rows() + first) * c.dim();
      const kernels::NewRows rows{.keys = c.keys.data() + at,
                                  .values = c.values.data() + at,
                                  .stride = c.dim(),
                                  .n_rows = n,
                                  .first_pos = first};
      cache.commit(layer, kv_head, n,
                   kernels::append_rows(rows, cache.shape(), cache.reserve(layer, kv_head, n)));
    }
  }
}

// The scores of all rows, as a replay in batches of n_batch tokens finds them.
cache::Cache replayed(const Case& c, int n_batch, int n_threads) {
  cache::Cache cache = empty_cache(c);
  append(c, 0, c.part.first_pos, cache);
  ReplayScores scores(cache, c.attention(), c.part, n_threads);
  for (int token = 0; token < c.part.n_tokens; token += n_batch) {
    const int n = std::min(n_batch, c.part.n_tokens - token);
    append(c, c.part.first_pos + token, n, cache);
    for (int layer = 0; layer < c.n_layers; ++layer) {
      for (int thread = 0; thread < n_threads; ++thread) {
        scores.observe({.layer = layer,
                        .n_tokens = n,
                        .first_pos = c.part.first_pos + token,
                        .first_rotation = c.part.first_pos + token,
                        .shape = c.attention(),
                        .rotation = nullptr,
                        .queries = c.query(layer, token, 0),
                        .keys = nullptr,
                        .values = nullptr,
                        .n_embd = c.n_embd,
                        .inputs = c.inputs.data() + static_cast<size_t>(token * c.n_embd)},
                       thread, n_threads);
      }
    }
  }
  kernels::ParallelFor parallel(n_threads);
  scores.write(c.weights, parallel, cache);
  return cache;
}

double norm(std::span<const float> x) {
  return std::sqrt(std::inner_product(
      x.begin(), x.end(), x.begin(), 0.0, std::plus<>(),
      [](float a, float b) { return static_cast<double>(a) * static_cast<double>(b); }));
}

// ||W_h v||
double output_norm(const Case& c, int head, const cache::HeadRows& rows, int slot) {
  double square = 0;
  for (int i = 0; i < c.n_embd; ++i) {
    double sum = 0;
    for (int e = 0; e < c.head_dim; ++e) {
      const auto at = static_cast<size_t>(i * c.n_heads * c.head_dim + head * c.head_dim + e);
      sum += static_cast<double>(c.weights.elements[at]) *
             oracle::row_element(rows.values, rows.value_type,
                                 static_cast<size_t>(slot * c.head_dim + e));
    }
    square += sum * sum;
  }
  return std::sqrt(square);
}

// Rows at slots that are positions: the same in double, one query after the other.
std::vector<double> plain_scores(const Case& c, const cache::Cache& cache, int layer, int kv_head) {
  const cache::HeadRows rows = cache.rows(layer, kv_head);
  const int group = c.n_heads / c.n_kv_heads;
  std::vector<double> scores(static_cast<size_t>(c.part.end - c.part.begin));
  for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    for (int token = 0; token < c.part.n_tokens; ++token) {
      std::vector<double> weights(static_cast<size_t>(c.n_rows()));
      double sum = 0;
      for (int j = 0; j < c.n_rows(); ++j) {
        const bool is_sink = j < c.part.n_sink && j < c.part.begin;
        const bool is_scored = j >= c.part.begin && j < c.part.end;
        const bool is_before = j >= c.part.first_pos && j <= c.part.first_pos + token;
        if (is_sink || is_scored || is_before) {
          double dot = 0;
          for (size_t e = 0; e < c.dim(); ++e) {
            dot += oracle::row_element(rows.keys, rows.key_type,
                                       static_cast<size_t>(j) * c.dim() + e) *
                   static_cast<double>(c.query(layer, token, head)[e]);
          }
          weights[static_cast<size_t>(j)] =
              std::exp(dot * static_cast<double>(c.attention().scale));
          sum += weights[static_cast<size_t>(j)];
        }
      }
      const double input = norm(std::span(c.inputs).subspan(static_cast<size_t>(token * c.n_embd),
                                                            static_cast<size_t>(c.n_embd)));
      for (size_t i = 0; i < scores.size(); ++i) {
        const int slot = c.part.begin + static_cast<int>(i);
        double score = weights[static_cast<size_t>(slot)] / sum;
        if (c.part.weighs_outputs) {
          score *= output_norm(c, head, rows, slot) / input;
        }
        scores[i] = std::max(scores[i], score);
      }
    }
  }
  return scores;
}

Case random_case(unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  Case c{};
  c.n_layers = draw(1, 2);
  c.n_kv_heads = draw(1, 3);
  c.n_heads = c.n_kv_heads * draw(1, 4);
  c.head_dim = std::array{8, 20, 32, 64}[static_cast<size_t>(draw(0, 3))];
  c.n_embd = draw(5, 40);
  c.type = std::array{cache::RowType::kF32, cache::RowType::kF16,
                      cache::RowType::kBf16}[static_cast<size_t>(draw(0, 2))];
  const int begin = draw(0, 9);
  const int end = begin + draw(1, 80);
  c.part = {.n_sink = draw(0, 6),
            .begin = begin,
            .end = end,
            .first_pos = end + draw(0, 30),
            .n_tokens = draw(1, 90),
            .weighs_outputs = draw(0, 1) == 1};
  const auto n_rows = static_cast<size_t>(c.n_layers * c.n_kv_heads * c.n_rows());
  c.keys = test::random_floats(random, n_rows * c.dim());
  c.values = test::random_floats(random, n_rows * c.dim());
  c.queries = test::random_floats(
      random, static_cast<size_t>(c.n_layers * c.part.n_tokens * c.n_heads) * c.dim());
  c.inputs = test::random_floats(random, static_cast<size_t>(c.part.n_tokens * c.n_embd));
  c.weights.n_inputs = c.n_heads * c.head_dim;
  c.weights.n_outputs = c.n_embd;
  c.weights.elements =
      test::random_floats(random, static_cast<size_t>(c.n_embd * c.weights.n_inputs));
  return c;
}

TEST(ReplayScores, AreThoseOfPlainLoops) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Case c = random_case(seed);
    const cache::Cache cache = replayed(c, 1 + static_cast<int>(seed % 40), 1);
    for (int layer = 0; layer < c.n_layers; ++layer) {
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        const std::vector<double> expected = plain_scores(c, cache, layer, kv_head);
        const float* const scores = cache.rows(layer, kv_head).scores;
        for (int slot = 0; slot < c.n_rows(); ++slot) {
          if (slot < c.part.begin || slot >= c.part.end) {
            ASSERT_EQ(scores[slot], kInfinity);
            continue;
          }
          const double score = expected[static_cast<size_t>(slot - c.part.begin)];
          ASSERT_NEAR(static_cast<double>(scores[slot]), score, 2e-5 * score + 1e-9)
              << "seed " << seed << ", row " << slot;
        }
      }
    }
  }
}

TEST(ReplayScores, HaveTheSameBitsForAnyBatchesAndThreads) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Case c = random_case(seed);
    const cache::Cache expected = replayed(c, c.part.n_tokens, 1);
    for (const int n_threads : {1, 3}) {
      const cache::Cache other = replayed(c, 7, n_threads);
      for (int kv_head = 0; kv_head < c.n_kv_heads; ++kv_head) {
        const auto scores_of = [&](const cache::Cache& cache) {
          const cache::HeadRows rows = cache.rows(c.n_layers - 1, kv_head);
          return std::vector<float>(rows.scores, rows.scores + rows.n);
        };
        ASSERT_EQ(scores_of(other), scores_of(expected)) << "seed " << seed;
      }
    }
  }
}

// The published fixture: 16 tokens of context, of which two are sinks, and the other eight replay it. kvpress counts each
// sink as 1.
struct Published {
  bool weighs_outputs;
  double sum;
  std::vector<int> best[2];  // six rows of each head
};

TEST(ReplayScores, OfTheGoldenFixtureAreKvpresss) {
  namespace golden = policy::golden;
  for (const Published& published :
       {Published{false, 6.360341, {{2, 5, 7, 8, 9, 15}, {3, 5, 7, 11, 13, 15}}},
        Published{true, 7.622630, {{2, 5, 6, 7, 9, 11}, {3, 9, 11, 12, 13, 15}}}}) {
    constexpr int kFirst = 16;
    constexpr size_t kToken = size_t{golden::kHeads} * golden::kHeadDim;
    const std::vector<float> q = golden::queries();
    const std::vector<float> hidden = golden::plain_queries();
    Case c{.n_layers = 1,
           .n_heads = golden::kHeads,
           .n_kv_heads = golden::kKvHeads,
           .head_dim = golden::kHeadDim,
           .n_embd = static_cast<int>(kToken),
           .type = cache::RowType::kF32,
           .part = {.n_sink = 2,
                    .begin = 2,
                    .end = kFirst,
                    .first_pos = kFirst,
                    .n_tokens = golden::kRows - kFirst,
                    .weighs_outputs = published.weighs_outputs},
           .keys = golden::keys(),
           .values = golden::values(),
           .queries = {q.begin() + kFirst * kToken, q.end()},
           .inputs = {hidden.begin() + kFirst * kToken, hidden.end()},
           .weights = {}};
    c.weights.n_inputs = c.weights.n_outputs = c.n_embd;
    c.weights.elements = golden::output_weights();
    const cache::Cache cache = replayed(c, 8, 1);
    double sum = 4;  // of two sinks in each head
    for (int kv_head = 0; kv_head < golden::kKvHeads; ++kv_head) {
      const float* const scores = cache.rows(0, kv_head).scores;
      std::vector<int> order(14);
      std::iota(order.begin(), order.end(), 2);
      for (const int slot : order) {
        sum += static_cast<double>(scores[slot]);
      }
      std::ranges::sort(order, [&](int a, int b) { return scores[a] > scores[b]; });
      order.resize(6);
      std::ranges::sort(order);
      EXPECT_EQ(order, published.best[kv_head]);
    }
    EXPECT_NEAR(sum, published.sum, 1e-5);
  }
}

// --- what is fed

TEST(ReplayParts, RepeatTheDocumentAndSayWhereToGoOn) {
  std::vector<Token> document(50);
  std::iota(document.begin(), document.end(), 100);
  const engine::ReplayText text{
      .request = {.first = {1, 2}, .next_before = {3}, .next_after = {4, 5}},
      .document_begin = 7,
      .document = document};
  const auto parts = engine::replay_parts(text, 20);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].begin, 7);
  EXPECT_EQ(parts[0].end, 27);
  EXPECT_EQ(parts[2].begin, 47);
  EXPECT_EQ(parts[2].end, 57);
  EXPECT_EQ(parts[0].tokens.size(), 22U);
  EXPECT_EQ(std::vector(parts[0].tokens.begin(), parts[0].tokens.begin() + 4),
            (std::vector<Token>{1, 2, 100, 101}));
  EXPECT_EQ(std::vector(parts[1].tokens.begin(), parts[1].tokens.begin() + 13),
            (std::vector<Token>{3, 112, 113, 114, 115, 116, 117, 118, 119, 4, 5, 120, 121}));
  EXPECT_EQ(parts[2].tokens.back(), 149);
  const engine::ReplaySize size = engine::replay_size(text.request, 50, 20);
  EXPECT_EQ(size.n_parts, 3);
  EXPECT_EQ(size.n_most, 31);
  EXPECT_EQ(size.n_tokens, 22 + 31 + 21);
  EXPECT_EQ(size.n_most_scored, 20);
  EXPECT_TRUE(engine::replay_parts({.request = text.request}, 20).empty());
}

// The turn that a document stands in goes on where it is open; otherwise a new one begins.
TEST(ReplayRequest, StandsInAUsersTurn) {
  const Model model(test::write_tiny_model(), {});
  const auto text_of = [&](const std::vector<Token>& tokens) {
    std::string text;
    for (const Token token : tokens) {
      text += model.vocabulary().piece(token);
    }
    return text;
  };
  const engine::ChatFormat chatml{.has_template = true, .chat_template = "chatml"};
  const auto open = engine::replay_request(model, chatml, true);
  const auto closed = engine::replay_request(model, chatml, false);
  EXPECT_TRUE(text_of(open.first).starts_with("\n\nRepeat")) << text_of(open.first);
  EXPECT_NE(text_of(open.first).find("assistant"), std::string::npos);
  EXPECT_NE(text_of(closed.first).find("user\nRepeat"), std::string::npos) << text_of(closed.first);
  EXPECT_TRUE(text_of(open.next_before).ends_with("starting with:"));
  EXPECT_NE(text_of(open.next_after).find("assistant"), std::string::npos);
  const auto plain = engine::replay_request(model, {.has_template = false}, false);
  EXPECT_EQ(text_of(plain.first), "\n\nRepeat the previous context exactly.\n\n");
}

// --- sessions

class Replay : public ::testing::Test {
 protected:
  std::unique_ptr<Session> session(const std::string& policy,
                                   EvictWhen evict = EvictWhen::kAfterPrompt,
                                   int n_threads = 1) const {
    return std::make_unique<Session>(
        model_, Policy::parse(policy),
        engine::SessionOptions{
            .evict = evict, .order = {}, .engine = {.n_threads = n_threads, .n_batch = 32}});
  }
  PromptTokens prompt(int n_document, bool has_question = true) const {
    const int n_vocab = model_.hyper().n_vocab;
    PromptTokens tokens{.before = {1, 2, 3, 4, 5, 6},
                        .document = test::random_tokens(n_document, n_vocab)};
    if (has_question) {
      tokens.question = test::random_tokens(9, n_vocab, 5);
      tokens.after = {7, 8};
    }
    return tokens;
  }
  static std::vector<float> scores(const Session& session, int layer, int kv_head) {
    const cache::HeadRows rows = session.sequence()->cache.rows(layer, kv_head);
    return {rows.scores, rows.scores + rows.n};
  }
  static std::vector<float> answer(Session& session) {
    std::vector<float> logits;
    session.generate({.n_predict = 12, .ignore_eos = true, .sampling = {.temperature = 0}},
                     {.on_logits = [&](const std::vector<float>& more) {
                       logits.insert(logits.end(), more.begin(), more.end());
                     }});
    return logits;
  }

  Model model_{test::write_tiny_model(), {}};
};

TEST_F(Replay, LeavesNothingButScores) {
  const auto full = session("full");
  const std::vector<float> logits = full->read(prompt(150), {});
  for (const char* const options : {"", ",replay_chunk=40", ",weigh=output,replay_chunk=64"}) {
    const auto replayed = session("kvzip:budget=1000" + std::string(options));
    EXPECT_TRUE(test::same_bits(replayed->read(prompt(150), {}), logits));
    EXPECT_EQ(replayed->sequence()->positions_fed, 167);
    EXPECT_EQ(replayed->sequence()->cache.rows_evicted(), 0);
    EXPECT_GT(replayed->sequence()->replay_ms, 0);
    for (int layer = 0; layer < 2; ++layer) {
      for (int kv_head = 0; kv_head < 2; ++kv_head) {
        const std::vector<float> found = scores(*replayed, layer, kv_head);
        ASSERT_EQ(found.size(), 167U);
        for (int slot = 0; slot < 167; ++slot) {
          const bool is_document = slot >= 6 && slot < 156;
          const float score = found[static_cast<size_t>(slot)];
          EXPECT_TRUE(is_document ? score > 0 && std::isfinite(score) : score == kInfinity);
        }
      }
    }
    EXPECT_TRUE(test::same_bits(answer(*replayed), answer(*full->fork())));
  }
}

TEST_F(Replay, TheRowsOfTheGreatestScoresStay) {
  const auto all = session("kvzip:budget=1000,n_sink=2");
  all->read(prompt(150), {});
  const auto cut = session("kvzip+uniform:budget=60,n_sink=2,n_recent=5");
  cut->read(prompt(150), {});
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      const std::vector<float> found = scores(*all, layer, kv_head);
      std::vector<int> best(found.size());
      std::iota(best.begin(), best.end(), 0);
      std::ranges::stable_sort(best, [&](int a, int b) {
        return found[static_cast<size_t>(a)] > found[static_cast<size_t>(b)];
      });
      best.resize(60);  // what is not the document's is among them
      std::ranges::sort(best);
      EXPECT_EQ(cut->sequence()->cache.positions(layer, kv_head), best);
    }
  }
  // The rows that are generated stay too, while those of the document go.
  answer(*cut);
  const std::vector<int> kept = cut->sequence()->cache.positions(1, 0);
  for (int pos = 156; pos < cut->sequence()->positions_fed; ++pos) {
    EXPECT_TRUE(std::ranges::binary_search(kept, pos)) << pos;
  }
}

TEST_F(Replay, OnePoolIsTheDefaultDivision) {
  const auto pooled = session("kvzip:budget=60,n_recent=5");
  const auto named = session("kvzip+pool:budget=60,n_recent=5");
  for (Session* const each : {pooled.get(), named.get()}) {
    each->read(prompt(150), {});
    EXPECT_EQ(each->policy().spec(), "kvzip:budget=60,n_recent=5");
  }
  const cache::Cache& cache = pooled->sequence()->cache;
  EXPECT_EQ(test::kept_positions(cache), test::kept_positions(named->sequence()->cache));
  int n_kept = 0;
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      n_kept += cache.n_cached(layer, kv_head);
    }
  }
  EXPECT_EQ(n_kept, 240);
  EXPECT_EQ(session("kvzip+uniform:budget=60")->policy().spec(), "kvzip+uniform:budget=60");
  EXPECT_EQ(session("kvzip+pyramid:budget=60")->policy().spec(), "kvzip+pyramid:budget=60");
}

TEST_F(Replay, ThreadsChangeNothing) {
  const auto one = session("kvzip:budget=50", EvictWhen::kAfterPrompt, 1);
  const auto three = session("kvzip:budget=50", EvictWhen::kAfterPrompt, 3);
  EXPECT_TRUE(test::same_bits(one->read(prompt(150), {}), three->read(prompt(150), {})));
  EXPECT_EQ(scores(*one, 1, 1), scores(*three, 1, 1));
  EXPECT_TRUE(test::same_bits(answer(*one), answer(*three)));
}

// A fork of what was read with the full cache has the document replayed by itself.
TEST_F(Replay, AForkIsAsIfThePolicyHadReadThePrompt) {
  for (const bool has_question : {false, true}) {
    const auto full = session("full");
    full->read(prompt(150, has_question), {});
    for (const char* const policy :
         {"kvzip:budget=50,replay_chunk=64", "kvzip+adakv:budget=40,weigh=output"}) {
      const auto direct = session(policy);
      direct->read(prompt(150, has_question), {});
      const auto fork = full->fork(Policy::parse(policy));
      EXPECT_EQ(test::kept_positions(fork->sequence()->cache),
                test::kept_positions(direct->sequence()->cache));
      EXPECT_EQ(scores(*fork, 1, 0), scores(*direct, 1, 0));
      EXPECT_TRUE(test::same_bits(answer(*fork), answer(*direct)));
      // And a fork of that to a smaller budget has its scores.
      const auto smaller = Policy::parse("kvzip:budget=20,replay_chunk=64");
      if (std::string_view(policy).starts_with("kvzip:")) {
        EXPECT_EQ(direct->fork(smaller)->sequence()->cache.longest() > 0, true);
      } else {
        EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { direct->fork(smaller); })
                      .find("did not keep all rows"),
                  std::string::npos);
      }
    }
    EXPECT_EQ(full->sequence()->cache.longest(), has_question ? 167 : 156);
  }
}

TEST_F(Replay, ACompressedCacheIsAskedAgainAndAgain) {
  const auto compressed = session("kvzip:budget=30%", EvictWhen::kBeforeQuestion);
  compressed->read(prompt(150, false), {});
  const std::string path = test::temporary_path("replayed");
  compressed->save(path);
  for (const uint32_t seed : {5U, 6U}) {
    const PromptTokens question{.question = test::random_tokens(9, model_.hyper().n_vocab, seed),
                                .after = {7, 8}};
    Session loaded(model_, engine::load_session(path, model_),
                   {.evict = EvictWhen::kBeforeQuestion,
                    .order = {},
                    .engine = {.n_threads = 1, .n_batch = 32}});
    const auto copy = compressed->fork();
    EXPECT_TRUE(test::same_bits(loaded.read(question, {}), copy->read(question, {})));
    EXPECT_EQ(scores(loaded, 1, 0), scores(*copy, 1, 0));
    EXPECT_TRUE(test::same_bits(answer(loaded), answer(*copy)));
    EXPECT_EQ(test::kept_positions(loaded.sequence()->cache),
              test::kept_positions(copy->sequence()->cache));
  }
}

TEST_F(Replay, ALaterDocumentIsReplayedOverWhatIsLeft) {
  const auto session = this->session("kvzip:budget=40");
  session->read(prompt(90), {});
  answer(*session);
  const int n_before = session->sequence()->positions_fed + 1;
  PromptTokens next{.document = test::random_tokens(70, model_.hyper().n_vocab, 9), .after = {7}};
  session->read(next, {});
  EXPECT_EQ(session->sequence()->positions_fed, n_before + 71);
  const cache::HeadRows rows = session->sequence()->cache.rows(1, 1);
  for (int slot = 0; slot < rows.n; ++slot) {
    const int pos = rows.positions[slot];
    const bool is_document = (pos >= 6 && pos < 96) || (pos >= n_before && pos < n_before + 70);
    if (!rows.is_evicted(slot)) {
      EXPECT_EQ(std::isfinite(rows.scores[slot]), is_document) << pos;
    }
  }
}

// What other parts of a policy remember is of the text, and not of its replay.
TEST_F(Replay, IsNothingToTheOtherParts) {
  const auto cake = session("kvzip+cake:budget=1000,cake_window=8");
  cake->read(prompt(150), {});
  EXPECT_EQ(cake->sequence()->queries.end_pos(1), 167);
  const auto squeeze = session("kvzip+squeeze:budget=1000");
  const auto squeeze_alone = session("knorm+squeeze:budget=1000");
  squeeze->read(prompt(150), {});
  squeeze_alone->read(prompt(150), {});
  EXPECT_EQ(squeeze->sequence()->similarity.mean(1), squeeze_alone->sequence()->similarity.mean(1));
  const auto cam = session("kvzip+cam:budget=1000");
  const auto h2o = session("h2o:budget=1000");
  cam->read(prompt(150), {});
  h2o->read(prompt(150), {});
  const cache::HeadRows rows = cam->sequence()->cache.rows(1, 0);
  const cache::HeadRows expected = h2o->sequence()->cache.rows(1, 0);
  EXPECT_TRUE(std::equal(rows.mass, rows.mass + rows.n, expected.mass));
}

TEST_F(Replay, ThePlanCountsIt) {
  for (const EvictWhen evict : {EvictWhen::kAfterPrompt, EvictWhen::kBeforeQuestion}) {
    for (const char* const policy :
         {"kvzip:budget=40", "kvzip:budget=20%,replay_chunk=48", "kvzip+uniform:budget=1000"}) {
      const auto session = this->session(policy, evict);
      const engine::Plan plan = session->plan(prompt(150), 10);
      const int n_parts = std::string_view(policy).find("chunk") == std::string_view::npos ? 1 : 4;
      EXPECT_EQ(plan.replay.n_parts, n_parts);
      EXPECT_GT(plan.replay.n_tokens, 150);
      session->reserve(plan.max_rows, plan.kept_rows);
      session->read(prompt(150), {});
      session->generate({.n_predict = 10, .ignore_eos = true, .sampling = {.temperature = 0}}, {});
      EXPECT_EQ(plan.kv_peak_bytes, session->sequence()->cache.peak_bytes()) << policy;
      EXPECT_GE(plan.footprint.scratch_bytes, session->peak_footprint().scratch_bytes) << policy;
      EXPECT_GE(plan.footprint.graph_bytes, session->peak_footprint().graph_bytes) << policy;
    }
  }
}

TEST_F(Replay, ACancelledOneLeavesNothingToGenerateFrom) {
  const auto session = this->session("kvzip:budget=40");
  std::atomic<bool> cancel = false;
  std::vector<double> fractions;
  error_of(ErrorCode::kCancelled, [&] {
    session->read(prompt(150), {.progress =
                                    [&](double fraction) {
                                      fractions.push_back(fraction);
                                      cancel = fraction > 0.7;
                                    },
                                .cancel = &cancel});
  });
  EXPECT_TRUE(std::ranges::is_sorted(fractions));
  EXPECT_LT(fractions.front(), 0.2);
  EXPECT_NE(error_of(ErrorCode::kInvalidArgument, [&] { answer(*session); }).find("nothing"),
            std::string::npos);
}

TEST_F(Replay, RefusesWhatItCannotDo) {
  const auto refusal = [&](const auto& action) {
    return error_of(ErrorCode::kInvalidArgument, action);
  };
  const auto expect = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(refusal([&] { session("kvzip:budget=40", EvictWhen::kPerChunk); }),
         "--evict per-chunk would cut them before");
  expect(refusal([&] { session("kvzip:budget=40", EvictWhen::kLegacyOrder); }),
         "has documents replayed, once they are read");
  expect(refusal([&] {
           Session(model_, Policy::parse("kvzip:budget=40"),
                   {.order = engine::PrefillOrder::kLayerMajor, .engine = {.n_threads = 1}});
         }),
         "needs --prefill chunk-major, since it has documents replayed with the full cache");
  for (const char* const positions : {"contiguous", "stalled"}) {
    expect(refusal([&] { Policy::parse("kvzip:budget=40,positions=" + std::string(positions)); }),
           "it takes positions=original");
  }
  expect(refusal([&] {
           Session small(model_, Policy::parse("kvzip:budget=40"),
                         {.n_ctx = 200, .order = {}, .engine = {.n_threads = 1}});
           small.plan(prompt(150), 1);
         }),
         "to replay it), the context 200");
  const auto cut = session("knorm:budget=40");
  cut->read(prompt(150), {});
  expect(refusal([&] { cut->fork(Policy::parse("kvzip:budget=40")); }),
         "has documents replayed with the full cache, and the sequence did not keep all rows");

  engine::Engine engine(model_, {.n_threads = 1, .n_batch = 32});
  engine::Sequence sequence = test::make_sequence(model_, "kvzip:budget=40", 400);
  const auto tokens = test::random_tokens(90, model_.hyper().n_vocab);
  expect(refusal([&] { test::feed_all(engine, sequence, tokens); }), "none is given to replay");
  engine::Batch batch(engine, {.n_sequences = 2, .n_tokens = 32});
  expect(refusal([&] { batch.add(sequence, tokens); }), "which a batch does not do");
  engine::Sequence full = test::make_sequence(model_, "full", 400);
  test::feed_all(engine, full, tokens);
  expect(refusal([&] { engine.fork(full, {.policy = Policy::parse("kvzip:budget=40")}); }),
         "none was given to replay");

  const Model windowed(test::write_tiny_model(test::windowed_model()), {});
  expect(error_of(ErrorCode::kUnsupported,
                  [&] { Session(windowed, Policy::parse("kvzip:budget=40"), {}); }),
         "layers of the model have a window");
  expect(error_of(ErrorCode::kUnsupported,
                  [&] { engine::check_gathered_on_gpu(Policy::parse("kvzip:budget=40")); }),
         "needs a replay of documents, which there is not on a GPU yet");
}

}  // namespace
}  // namespace winnow
