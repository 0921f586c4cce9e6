// Rows that go leave something to those that stay: in the cache's own types, wherever rows are cut, and alike.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "engine/session.h"
#include "engine/session_file.h"
#include "kernels/append.h"
#include "kernels/row_kernels.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;

constexpr const char* kPolicies[] = {
    "knorm+merge:budget=40",
    "snapkv+adakv+merge:budget=40,obs_window=8",
    "h2o+cam:budget=40",
    "keydiff+pyramid+cam:budget=40",
    "knorm+rank+criticalkv+merge:budget=40",
    "keydiff+merge:budget=40,positions=contiguous",
    "snapkv+think:budget=40,obs_window=8",
};

std::vector<float> row_at(const kernels::RowVectors& vectors, int slot) {
  Scratch scratch;
  std::vector<float> row(static_cast<size_t>(vectors.head_dim));
  kernels::read_rows(vectors, {&slot, 1}, row, scratch);
  return row;
}

std::vector<float> row_values(const cache::HeadRows& rows, int slot) {
  return row_at(kernels::values_of(rows), slot);
}

// The keys and values of all rows held, in order.
std::vector<float> all_rows(const cache::Cache& cache) {
  std::vector<float> all;
  for (int layer = 0; layer < cache.shape().n_layers; ++layer) {
    for (int kv_head = 0; kv_head < cache.shape().n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = cache.rows(layer, kv_head);
      for (int slot = 0; slot < rows.n; ++slot) {
        if (!rows.is_evicted(slot)) {
          for (const auto& vectors : {kernels::keys_of(rows), kernels::values_of(rows)}) {
            const auto row = row_at(vectors, slot);
            all.insert(all.end(), row.begin(), row.end());
          }
        }
      }
    }
  }
  return all;
}

// A prompt's rows are merged once all are there, whatever graphs they came in.
TEST(Merging, IsTheSameForBothOrdersAnyChunksAndAnyThreads) {
  const Model model(test::write_tiny_model(test::windowed_model()), {});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 2);
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    std::vector<float> values;
    std::vector<float> logits;
    for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
      for (const int n_batch : {32, 150}) {
        Engine engine(model, {.n_threads = n_batch == 32 ? 3 : 1, .n_batch = n_batch});
        Sequence sequence = test::make_sequence(model, policy, 400, cache::RowType::kF16);
        test::feed_all(engine, sequence, tokens, order);
        const auto merged = all_rows(sequence.cache);
        const auto decoded = test::decode_all(engine, sequence, next);
        if (values.empty()) {
          values = merged;
          logits = decoded;
        }
        EXPECT_TRUE(test::same_bits(merged, values));
        EXPECT_TRUE(test::same_bits(decoded, logits));
      }
    }
    const std::string plain =  // the same without the merger
        std::string(policy).substr(0, std::string_view(policy).rfind('+')) +
        std::string(policy).substr(std::string_view(policy).find(':'));
    Engine engine(model, {.n_threads = 1, .n_batch = 150});
    Sequence sequence = test::make_sequence(model, plain, 400, cache::RowType::kF16);
    test::feed_all(engine, sequence, tokens);
    EXPECT_FALSE(test::same_bits(all_rows(sequence.cache), values)) << plain;
  }
}

TEST(Merging, ACopyThatIsCutHasWhatACutSequenceHas) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 2, .n_batch = 64});
  const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
  const auto next = test::random_tokens(20, model.hyper().n_vocab, 2);
  for (const char* spec : kPolicies) {
    SCOPED_TRACE(spec);
    const policy::Policy policy = policy::Policy::parse(spec);
    Sequence cut = test::make_sequence(model, spec);
    test::feed_all(engine, cut, tokens);
    policy::Policy full = policy::Policy::full(policy.needs());
    const cache::CacheShape shape =
        engine::cache_shape(model.hyper(), cache::RowType::kF32, cache::RowType::kF32, full, 400);
    Sequence source(shape, std::move(full));
    test::feed_all(engine, source, tokens);
    Sequence copy = engine.fork(source, {.policy = policy, .max_rows = 0});
    EXPECT_TRUE(test::same_bits(all_rows(copy.cache), all_rows(cut.cache)));
    EXPECT_EQ(copy.cache.trim_bounds().intact, cut.cache.trim_bounds().intact);
    EXPECT_TRUE(
        test::same_bits(test::decode_all(engine, copy, next), test::decode_all(engine, cut, next)));
  }
}

// What is written is what the policy says, rounded once to the type of the rows; all else is as it was.
TEST(Merging, RewritesValuesInTheTypeOfTheRowsAndNothingElse) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  const auto tokens = test::random_tokens(120, model.hyper().n_vocab);
  for (const cache::RowType type :
       {cache::RowType::kF32, cache::RowType::kF16, cache::RowType::kBf16}) {
    SCOPED_TRACE(cache::row_type_name(type));
    Sequence merged = test::make_sequence(model, "knorm+merge:budget=40", 200, type);
    Sequence plain = test::make_sequence(model, "knorm:budget=40", 200, type);
    Sequence full = test::make_sequence(model, "knorm:budget=190", 200, type);
    for (Sequence* sequence : {&merged, &plain, &full}) {
      test::feed_all(engine, *sequence, tokens);
    }
    EXPECT_EQ(test::kept_positions(merged.cache), test::kept_positions(plain.cache));
    const policy::Policy policy = policy::Policy::parse("knorm+merge:budget=40");
    int n_changed = 0;
    for (int layer = 0; layer < 2; ++layer) {
      for (int kv_head = 0; kv_head < 2; ++kv_head) {
        const cache::HeadRows all = full.cache.rows(layer, kv_head);
        const policy::LayerView view{.layer = layer, .heads = {&all, 1}};
        const auto kept =
            test::kept_positions(plain.cache)[static_cast<size_t>(2 * layer + kv_head)];
        Scratch scratch;
        const Scratch::Frame frame(scratch);
        const policy::NewRows expected = policy.merge(view, 0, kept, scratch);
        const cache::HeadRows rows = merged.cache.rows(layer, kv_head);
        const cache::HeadRows untouched = plain.cache.rows(layer, kv_head);
        const size_t key_bytes = merged.cache.shape().key_bytes();
        EXPECT_EQ(std::memcmp(rows.keys, untouched.keys, 40 * key_bytes), 0);
        EXPECT_EQ(std::memcmp(rows.scores, untouched.scores, 40 * sizeof(float)), 0);
        size_t next = 0;
        for (int slot = 0; slot < 40; ++slot) {
          const auto value = row_values(rows, slot);
          const bool is_changed = next < expected.rows.size() && expected.rows[next] == slot;
          const auto wanted =
              is_changed
                  ? std::vector<float>(
                        expected.values.begin() + static_cast<std::ptrdiff_t>(next * 16),
                        expected.values.begin() + static_cast<std::ptrdiff_t>(next * 16 + 16))
                  : row_values(untouched, slot);
          next += is_changed ? 1 : 0;
          n_changed += is_changed ? 1 : 0;
          const float step = type == cache::RowType::kF32   ? 0
                             : type == cache::RowType::kF16 ? 0x1p-11F
                                                            : 0x1p-8F;
          for (size_t i = 0; i < value.size(); ++i) {
            EXPECT_NEAR(value[i], wanted[i], std::abs(wanted[i]) * step + (step > 0 ? 1e-7F : 0));
          }
        }
      }
    }
    EXPECT_GT(n_changed, 40);
    EXPECT_EQ(merged.cache.append_counts().saturated, 0);
  }
}

TEST(Merging, ThinkSilencesTheSameChannelsOfAllKeysButTheNewest) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence =
      test::make_sequence(model, "knorm+think:budget=40,think_channels=0.5,think_recent=8,slack=0");
  test::feed_all(engine, sequence, test::random_tokens(90, model.hyper().n_vocab));
  for (int layer = 0; layer < 2; ++layer) {
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, kv_head);
      const auto zeros = [&](int slot) {
        std::vector<size_t> channels;
        const auto key = row_at(kernels::keys_of(rows), slot);
        for (size_t c = 0; c < key.size(); ++c) {
          if (key[c] == 0) {
            channels.push_back(c);
          }
        }
        return channels;
      };
      ASSERT_EQ(rows.n, 40);
      EXPECT_EQ(zeros(0).size(), static_cast<size_t>(rows.head_dim / 2));
      for (int slot = 0; slot < 40; ++slot) {
        EXPECT_EQ(zeros(slot), slot < 32 ? zeros(0) : std::vector<size_t>{}) << slot;
      }
    }
  }
}

// A row that was changed is not what it was, though it is still there.
TEST(Merging, IsNotUndoneByTrimming) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {.n_threads = 1, .n_batch = 64});
  Sequence sequence = test::make_sequence(model, "streaming+merge:budget=40,n_sink=0");
  const auto tokens = test::random_tokens(40, model.hyper().n_vocab);
  test::feed_all(engine, sequence, tokens);
  engine::trim(sequence, 39);  // nothing has gone
  test::feed_all(engine, sequence, std::span(tokens).last(1));
  test::decode_all(engine, sequence, test::random_tokens(3, model.hyper().n_vocab, 2));
  const std::string message =
      test::error_of(ErrorCode::kInvalidArgument, [&] { engine::trim(sequence, 41); });
  EXPECT_NE(message.find("or changed it"), std::string::npos) << message;

  // Without sinks that go, rows before the first loss are as they were, unless they took something.
  Sequence with_sinks = test::make_sequence(model, "streaming+merge:budget=40,n_sink=8");
  Sequence plain = test::make_sequence(model, "streaming:budget=40,n_sink=8");
  for (Sequence* each : {&with_sinks, &plain}) {
    test::feed_all(engine, *each, test::random_tokens(90, model.hyper().n_vocab));
    EXPECT_EQ(each->cache.trim_bounds().intact, 8);
    EXPECT_EQ(each->cache.trim_bounds().settled, 90);
  }
}

TEST(Merging, NormsOfOutputsAreThoseOfTheNewValues) {
  cache::Cache cache(
      {.n_layers = 1, .n_kv_heads = 1, .head_dim = 4, .max_rows = 8, .stores_output_norms = true});
  const std::vector<float> rows(16, 1.0F);
  cache.commit(
      0, 0, 4,
      kernels::append_rows(
          {.keys = rows.data(), .values = rows.data(), .stride = 4, .n_rows = 4, .first_pos = 10},
          cache.shape(), cache.reserve(0, 0, 4)));
  float* const norms = cache.rows(0, 0).output_norms;
  std::fill_n(norms, 4, 7.0F);
  const std::vector<int> slots{1, 3};
  const std::vector<float> values{2, 3, 4, 1e6F, 6, 7, 8, 9};
  kernels::rewrite_values(cache, 0, 0, slots, values);
  EXPECT_EQ(std::vector<float>(norms, norms + 4),
            (std::vector<float>{7, cache::kUnknownNorm, 7, cache::kUnknownNorm}));
  EXPECT_EQ(row_values(cache.rows(0, 0), 1), (std::vector<float>{2, 3, 4, 65504}));
  EXPECT_EQ(row_values(cache.rows(0, 0), 2), (std::vector<float>{1, 1, 1, 1}));
  EXPECT_EQ(row_values(cache.rows(0, 0), 3), (std::vector<float>{6, 7, 8, 9}));
  EXPECT_EQ(cache.append_counts().saturated, 1);
  EXPECT_EQ(cache.trim_bounds().intact, 11);
  EXPECT_EQ(cache.trim_bounds().settled, 14);
}

TEST(Merging, GoesThroughACacheFile) {
  const Model model(test::write_tiny_model(), {});
  const engine::PromptTokens prompt{.document = test::random_tokens(150, model.hyper().n_vocab)};
  const std::string path = test::temporary_path("merged.wnw");
  for (const char* policy : kPolicies) {
    SCOPED_TRACE(policy);
    engine::SessionOptions options;
    options.engine.n_threads = 1;
    engine::Session session(model, policy::Policy::parse(policy), options);
    session.read(prompt, {});
    session.save(path);
    engine::Session other(model, engine::load_session(path, model), options);
    other.reserve(400);
    const engine::GenerateOptions generate{
        .n_predict = 20, .ignore_eos = true, .sampling = {.temperature = 0}};
    EXPECT_EQ(other.generate(generate, {}).text, session.generate(generate, {}).text);
    EXPECT_TRUE(
        test::same_bits(all_rows(other.sequence()->cache), all_rows(session.sequence()->cache)));
  }
}

}  // namespace
}  // namespace winnow
