// Attention in chunks is written beside rows as their chunk gets full: the same bits however tokens come.

#include "kernels/chunk_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/device_runner.h"
#include "engine/evict.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using policy::Policy;

constexpr int kLength = 12;

// Keeps all queries that it is shown: [n_layers, n_tokens, n_heads, head_dim].
class Queries final : public kernels::ActivationObserver {
 public:
  explicit Queries(int n_layers) : layers_(static_cast<size_t>(n_layers)) {}

  void observe(const kernels::LayerActivations& shown, int thread,
               int /*n_threads*/) noexcept override {
    if (thread == 0) {
      std::vector<float>& all = layers_[static_cast<size_t>(shown.layer)];
      all.insert(all.end(), shown.queries,
                 shown.queries + shown.n_tokens * shown.shape.n_heads * shown.shape.head_dim);
    }
  }
  std::span<const float> of(int layer) const { return layers_[static_cast<size_t>(layer)]; }

 private:
  std::vector<std::vector<float>> layers_;
};

void expect_scores_of_chunks(const Sequence& sequence, const Queries& queries,
                             const kernels::AttendShape& attention, bool is_scaled) {
  const cache::CacheShape& shape = sequence.cache.shape();
  ASSERT_EQ(shape.score_kind, cache::StaticScore::kChunkAttention);
  const int group = attention.gqa_group_size();
  const auto token =
      static_cast<size_t>(attention.n_heads) * static_cast<size_t>(attention.head_dim);
  Scratch scratch;
  const std::span<float> memory =
      scratch.take<float>(kernels::chunk_scratch_floats(shape.head_dim));
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int kv_head = 0; shape.swa_window(layer) == 0 && kv_head < shape.n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, kv_head);
      for (int slot = 0; slot < rows.n; slot += kLength) {
        if (slot + kLength > rows.n) {
          EXPECT_TRUE(std::isnan(rows.scores[slot]));
          continue;
        }
        std::vector<int64_t> mass(kLength);
        kernels::add_chunk_attention(
            rows, {.first = slot, .last = slot + kLength},
            {.q = queries.of(layer).data() + static_cast<size_t>(slot) * token +
                  static_cast<size_t>(kv_head * group * attention.head_dim),
             .token_stride = token,
             .n_heads = group,
             .n_tokens = kLength},
            is_scaled ? attention.scale : 1.0F, memory.data(), mass);
        for (size_t i = 0; i < mass.size(); ++i) {
          ASSERT_EQ(rows.scores[static_cast<size_t>(slot) + i],
                    static_cast<float>(static_cast<double>(mass[i]) / kernels::kMassScale));
        }
      }
    }
  }
}

kernels::AttendShape attention_of(const Model& model) {
  const auto& hyper = model.hyper();
  return {.n_heads = hyper.n_heads,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .scale = model::attention_scale(model.family(), hyper)};
}

std::string spec(const std::string& more = {}) {
  return "noncausal:budget=200,neighbours=" + std::to_string(kLength) + more;
}

TEST(ChunkAttention, IsWrittenAsChunksGetFullHoweverThePromptIsCut) {
  for (const test::TinyModelOptions& options : {test::TinyModelOptions{}, test::windowed_model()}) {
    const Model model(test::write_tiny_model(options), {});
    const auto tokens = test::random_tokens(100, model.hyper().n_vocab);
    for (const std::string scaled : {"false", "true"}) {
      for (const int n_batch : {5, 12, 40, 100}) {
        for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
          Engine engine(model, {.n_threads = 2, .n_batch = n_batch});
          Sequence sequence = test::make_sequence(model, spec(",scaled=" + scaled));
          Queries queries(model.hyper().n_layers);
          const engine::Feed feed{.sequence = &sequence, .tokens = tokens, .observer = &queries};
          engine.feed({&feed, 1}, {.order = order, .progress = {}});
          expect_scores_of_chunks(sequence, queries, attention_of(model), scaled == "true");
        }
      }
    }
  }
}

// Each of a chunk's queries shares a weight of 1 out among its rows.
TEST(ChunkAttention, GeneratedTokensFillChunksToo) {
  const Model model(test::write_tiny_model({}), {});
  const auto tokens = test::random_tokens(64, model.hyper().n_vocab);
  Engine engine(model, {.n_threads = 2});
  Sequence sequence = test::make_sequence(model, spec());
  test::feed_all(engine, sequence, std::span(tokens).first(29));
  test::decode_all(engine, sequence, std::span(tokens).subspan(29));
  const int group = attention_of(model).gqa_group_size();
  for (int layer = 0; layer < model.hyper().n_layers; ++layer) {
    const cache::HeadRows rows = sequence.cache.rows(layer, 0);
    for (int begin = 0; begin + kLength <= rows.n; begin += kLength) {
      double sum = 0;
      for (int slot = begin; slot < begin + kLength; ++slot) {
        sum += static_cast<double>(rows.scores[slot]);
      }
      EXPECT_NEAR(sum, kLength * group, 1e-3) << layer << ", " << begin;
    }
    EXPECT_TRUE(std::isnan(rows.scores[rows.n - 1]));  // 64 = 5 · 12 + 4
  }
}

TEST(ChunkAttention, ForksOfASequenceThatKeptItAreCutByIt) {
  const Model model(test::write_tiny_model({}), {});
  const auto tokens = test::random_tokens(100, model.hyper().n_vocab);
  Engine engine(model, {.n_threads = 2});
  const Policy policy = Policy::parse("noncausal:budget=40,neighbours=12");
  policy::Needs watched = policy.needs();
  watched.add(Policy::parse("knorm:budget=40").needs());
  Sequence full(engine::cache_shape(model.hyper(), cache::RowType::kF32, cache::RowType::kF32,
                                    Policy::full(watched), 200),
                Policy::full(watched));
  test::feed_all(engine, full, tokens);
  for (const std::string method : {"noncausal:budget=40,neighbours=12", "knorm:budget=40"}) {
    Sequence alone = test::make_sequence(model, method);
    test::feed_all(engine, alone, tokens);
    const Sequence fork = engine.fork(full, {.policy = Policy::parse(method)});
    EXPECT_EQ(test::kept_positions(fork.cache), test::kept_positions(alone.cache)) << method;
  }
  EXPECT_NE(test::error_of(
                ErrorCode::kInvalidArgument,
                [&] {
                  engine.fork(full, {.policy = Policy::parse("noncausal:budget=40,neighbours=13")});
                })
                .find("needs the last 13 queries"),
            std::string::npos);
  EXPECT_NE(
      test::error_of(
          ErrorCode::kInvalidArgument,
          [&] { engine.fork(full, {.policy = Policy::parse("noncausal:budget=40,neighbours=6")}); })
          .find("needs attention in chunks of 6"),
      std::string::npos);
}

TEST(ChunkAttention, AGpuRefusesIt) {
  EXPECT_NE(
      test::error_of(ErrorCode::kUnsupported,
                     [] { engine::check_gathered_on_gpu(Policy::parse("compactor:budget=10")); })
          .find("attention in chunks, which there is not on a GPU yet"),
      std::string::npos);
}

}  // namespace
}  // namespace winnow
