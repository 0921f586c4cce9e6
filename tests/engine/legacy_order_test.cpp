// Legacy order, which is wrong on purpose, against a plain implementation of the same mistake: the model's own graph
// functions around rows in vectors, a sort, and attention in double precision.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/random.h"
#include "engine/batch.h"
#include "engine/session.h"
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "ggml-cpu.h"
#include "support/error_of.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::EvictWhen;
using engine::Feed;
using engine::PromptEviction;
using engine::Sequence;
using model::Model;

std::vector<float> feed_legacy(Engine& engine, Sequence& sequence,
                               std::span<const int32_t> tokens) {
  const Feed feed{.sequence = &sequence, .tokens = tokens, .logits = engine::WantedLogits::kAll};
  return std::move(
      engine.feed({&feed, 1}, {.eviction = PromptEviction::kLegacyOrder, .progress = {}})[0]);
}

struct Row {
  int pos;
  std::vector<float> key;
  std::vector<float> value;
};

// How many rows every head keeps, and what a row is worth.
struct Cut {
  size_t budget;
  int n_sink;
  size_t n_recent;
  double (*worth)(int layer, int kv_head, const Row& row);
};

double by_norm(int /*layer*/, int /*kv_head*/, const Row& row) {
  double sum = 0;
  for (const float element : row.key) {
    sum += static_cast<double>(element) * static_cast<double>(element);
  }
  return -sum;
}

// Not changed by rounding, which where keys are normed turns the order of neighbours round.
double by_hash(int layer, int kv_head, const Row& row) {
  uint64_t hash = splitmix64(0);
  for (const int value : {layer, kv_head, row.pos}) {
    hash = splitmix64(hash ^ static_cast<uint32_t>(value));
  }
  return static_cast<double>(hash >> 40);
}

class PlainLegacyOrder {
 public:
  PlainLegacyOrder(const Model& model, const Cut& cut)
      : model_(model),
        hyper_(model.hyper()),
        cut_(cut),
        heads_(static_cast<size_t>(hyper_.n_layers * hyper_.n_kv_heads)) {}

  // Logits of a chunk's tokens, [n, n_vocab].
  std::vector<float> feed(std::span<const int32_t> chunk) {
    n_tokens_ = static_cast<int64_t>(chunk.size());
    std::vector<float> x;
    compute([&](ggml_context* ctx) {
      ggml_tensor* const tokens = input(ctx, GGML_TYPE_I32, {n_tokens_}, chunk.data());
      output(model::embed(builder(ctx), tokens), x);
    });
    for (int layer = 0; layer < hyper_.n_layers; ++layer) {
      std::vector<float> q, k, v;
      compute([&](ggml_context* ctx) {
        const auto qkv = model_.family().before_attention(builder(ctx), layer, residual(ctx, x));
        output(ggml_cont(ctx, qkv.q), q);
        output(ggml_cont(ctx, qkv.k), k);
        output(ggml_cont(ctx, qkv.v), v);
      });
      const std::vector<float> attended = attend(layer, q, k, v);
      compute([&](ggml_context* ctx) {
        ggml_tensor* const of_heads =
            input(ctx, GGML_TYPE_F32, {int64_t{hyper_.head_dim} * hyper_.n_heads, n_tokens_},
                  attended.data());
        output(model_.family().after_attention(builder(ctx), layer, residual(ctx, x), of_heads), x);
      });
    }
    std::vector<float> logits;
    compute(
        [&](ggml_context* ctx) { output(model::logits(builder(ctx), residual(ctx, x)), logits); });
    n_fed_ += static_cast<int>(n_tokens_);
    return logits;
  }

  std::vector<std::vector<int>> kept_positions() const {
    std::vector<std::vector<int>> positions;
    for (const auto& head : heads_) {
      std::vector<int>& of_head = positions.emplace_back();
      for (const Row& row : head) {
        of_head.push_back(row.pos);
      }
    }
    return positions;
  }

 private:
  // ---- graphs ----

  model::GraphBuilder builder(ggml_context* ctx) {
    std::vector<int32_t> positions(static_cast<size_t>(n_tokens_));
    for (size_t i = 0; i < positions.size(); ++i) {
      positions[i] = n_fed_ + static_cast<int>(i);
    }
    return {.ctx = ctx,
            .hyper = hyper_,
            .weights = model_.weights(),
            .positions = input(ctx, GGML_TYPE_I32, {n_tokens_}, positions.data()),
            .n_ctx = hyper_.n_ctx_scaled};
  }

  ggml_tensor* residual(ggml_context* ctx, const std::vector<float>& x) {
    return input(ctx, GGML_TYPE_F32, {hyper_.n_embd, n_tokens_}, x.data());
  }

  ggml_tensor* input(ggml_context* ctx, ggml_type type, const std::vector<int64_t>& shape,
                     const void* data) {
    ggml_tensor* const tensor =
        ggml_new_tensor(ctx, type, static_cast<int>(shape.size()), shape.data());
    ggml_set_input(tensor);
    const auto* const bytes = static_cast<const std::byte*>(data);
    inputs_.emplace_back(tensor, std::vector<std::byte>(bytes, bytes + ggml_nbytes(tensor)));
    return tensor;
  }

  void output(ggml_tensor* tensor, std::vector<float>& floats) {
    ggml_set_output(tensor);
    outputs_.emplace_back(tensor, &floats);
  }

  void compute(const std::function<void(ggml_context*)>& build) {
    constexpr size_t kNodes = 512;
    inputs_.clear();
    outputs_.clear();
    const ggml_context_ptr ctx(ggml_init(
        {.mem_size = kNodes * ggml_tensor_overhead() + ggml_graph_overhead_custom(kNodes, false),
         .mem_buffer = nullptr,
         .no_alloc = true}));
    build(ctx.get());
    ggml_cgraph* const graph = ggml_new_graph_custom(ctx.get(), kNodes, false);
    for (const auto& [tensor, floats] : outputs_) {
      ggml_build_forward_expand(graph, tensor);
    }
    const ggml_gallocr_ptr allocator(ggml_gallocr_new(ggml_backend_cpu_buffer_type()));
    ASSERT_TRUE(ggml_gallocr_alloc_graph(allocator.get(), graph));
    for (const auto& [tensor, bytes] : inputs_) {
      if (tensor->buffer != nullptr) {  // else no node reads it
        ggml_backend_tensor_set(tensor, bytes.data(), 0, bytes.size());
      }
    }
    const ggml_backend_ptr backend(ggml_backend_cpu_init());
    ggml_backend_cpu_set_n_threads(backend.get(), 1);
    ASSERT_EQ(ggml_backend_graph_compute(backend.get(), graph), GGML_STATUS_SUCCESS);
    for (const auto& [tensor, floats] : outputs_) {
      floats->resize(static_cast<size_t>(ggml_nelements(tensor)));
      ggml_backend_tensor_get(tensor, floats->data(), 0, ggml_nbytes(tensor));
    }
  }

  // ---- rows ----

  // Sinks, the last rows, and of the others those that are worth most.
  void evict(int layer, int kv_head, std::vector<Row>& rows) const {
    if (rows.size() <= cut_.budget) {
      return;
    }
    const int first_recent = rows[rows.size() - cut_.n_recent].pos;
    const auto is_protected = [&](const Row& row) {
      return row.pos < cut_.n_sink || row.pos >= first_recent;
    };
    std::stable_sort(rows.begin(), rows.end(), [&](const Row& a, const Row& b) {
      return is_protected(a) != is_protected(b)
                 ? is_protected(a)
                 : cut_.worth(layer, kv_head, a) > cut_.worth(layer, kv_head, b);
    });
    rows.resize(cut_.budget);
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.pos < b.pos; });
  }

  std::vector<double> softmax_sum(const std::vector<const Row*>& seen, const float* query) const {
    const auto dim = static_cast<size_t>(hyper_.head_dim);
    const double scale = static_cast<double>(model::attention_scale(model_.family(), hyper_));
    std::vector<double> scores;
    for (const Row* const row : seen) {
      double dot = 0;
      for (size_t i = 0; i < dim; ++i) {
        dot += static_cast<double>(query[i]) * static_cast<double>(row->key[i]);
      }
      scores.push_back(dot * scale);
    }
    const double highest = *std::max_element(scores.begin(), scores.end());
    std::vector<double> sum(dim, 0.0);
    double weights = 0;
    for (size_t j = 0; j < seen.size(); ++j) {
      const double weight = std::exp(scores[j] - highest);
      weights += weight;
      for (size_t i = 0; i < dim; ++i) {
        sum[i] += weight * static_cast<double>(seen[j]->value[i]);
      }
    }
    for (double& element : sum) {
      element /= weights;
    }
    return sum;
  }

  std::vector<float> attend(int layer, const std::vector<float>& q, const std::vector<float>& k,
                            const std::vector<float>& v) {
    const auto dim = static_cast<size_t>(hyper_.head_dim);
    const auto n_kv_heads = static_cast<size_t>(hyper_.n_kv_heads);
    const size_t group = static_cast<size_t>(hyper_.n_heads) / n_kv_heads;
    const auto n = static_cast<size_t>(n_tokens_);
    std::vector<float> out(q.size());
    for (size_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
      std::vector<Row>& rows = heads_[static_cast<size_t>(layer) * n_kv_heads + kv_head];
      const auto of_token = [&](const std::vector<float>& all, size_t token) {
        const float* const from = all.data() + (token * n_kv_heads + kv_head) * dim;
        return std::vector<float>(from, from + dim);
      };
      for (size_t j = 0; j < n; ++j) {
        rows.push_back({n_fed_ + static_cast<int>(j), of_token(k, j), of_token(v, j)});
      }
      const int window = hyper_.swa_window(layer);
      if (window == 0) {
        evict(layer, static_cast<int>(kv_head), rows);
      }
      for (size_t j = 0; j < n; ++j) {
        std::vector<const Row*> seen;
        for (size_t i = 0; i < rows.size(); ++i) {
          const int distance = n_fed_ + static_cast<int>(j) - rows[i].pos;
          if (window > 0 ? distance >= 0 && distance < window : i + n <= rows.size() + j) {
            seen.push_back(&rows[i]);
          }
        }
        for (size_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const size_t at = (j * static_cast<size_t>(hyper_.n_heads) + head) * dim;
          const std::vector<float> own = of_token(v, j);
          const std::vector<double> sum = seen.empty() ? std::vector<double>(own.begin(), own.end())
                                                       : softmax_sum(seen, q.data() + at);
          std::transform(sum.begin(), sum.end(), out.begin() + static_cast<std::ptrdiff_t>(at),
                         [](double element) { return static_cast<float>(element); });
        }
      }
    }
    return out;
  }

  const Model& model_;
  const model::Hyperparameters& hyper_;
  Cut cut_;
  std::vector<std::vector<Row>> heads_;  // [n_layers, n_kv_heads]
  int n_fed_ = 0;
  int64_t n_tokens_ = 0;  // of the chunk
  std::vector<std::pair<ggml_tensor*, std::vector<std::byte>>> inputs_;
  std::vector<std::pair<ggml_tensor*, std::vector<float>*>> outputs_;
};

// Chunks longer than the budget, in which some queries are left without a row, of about its length, and shorter ones.
TEST(LegacyOrder, IsTheSameMistakeAsAPlainImplementationsInEveryFamily) {
  const Cut cut{.budget = 40, .n_sink = 4, .n_recent = 10, .worth = by_hash};
  std::vector<test::TinyModelOptions> models{test::windowed_model()};
  for (const char* architecture : {"llama", "qwen2", "qwen3", "phi3"}) {
    models.push_back({.architecture = architecture});
  }
  for (const test::TinyModelOptions& options : models) {
    const Model model(test::write_tiny_model(options), {});
    const auto tokens = test::random_tokens(150, model.hyper().n_vocab);
    for (const int n_batch : {150, 64, 41, 17}) {
      SCOPED_TRACE(options.architecture + " " + std::to_string(n_batch));
      PlainLegacyOrder plain(model, cut);
      std::vector<float> expected;
      for (size_t fed = 0; fed < tokens.size(); fed += static_cast<size_t>(n_batch)) {
        const size_t n = std::min(tokens.size() - fed, static_cast<size_t>(n_batch));
        const auto logits = plain.feed(std::span(tokens).subspan(fed, n));
        expected.insert(expected.end(), logits.begin(), logits.end());
      }
      Engine engine(model, {.n_threads = 2, .n_batch = n_batch});
      Sequence sequence = test::make_sequence(model, "random:budget=40,n_sink=4,n_recent=10");
      const auto logits = feed_legacy(engine, sequence, tokens);
      ASSERT_EQ(logits.size(), expected.size());
      float worst = 0;
      float largest = 1;
      for (size_t i = 0; i < logits.size(); ++i) {
        worst = std::max(worst, std::abs(logits[i] - expected[i]));
        largest = std::max(largest, std::abs(expected[i]));
      }
      // gemma3's activation goes through a table of half precision, which turns rounding into steps.
      EXPECT_LT(worst, (options.architecture == "gemma3" ? 1e-3F : 1e-4F) * largest);
      const auto kept = plain.kept_positions();
      const auto held = test::kept_positions(sequence.cache);
      for (size_t head = 0; head < held.size(); ++head) {
        const int layer = static_cast<int>(head) / model.hyper().n_kv_heads;
        if (model.hyper().swa_window(layer) == 0) {
          EXPECT_EQ(held[head], kept[head]) << head;
        }
      }
      EXPECT_TRUE(sequence.evicted_during_prompt);
    }
  }
}

TEST(LegacyOrder, WithoutAnythingToEvictIsTheRightOrderToTheBit) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(600, model.hyper().n_vocab);  // several block lengths
  for (const int n_batch : {600, 100, 7}) {
    Engine engine(model, {.n_threads = 2, .n_batch = n_batch});
    Sequence right = test::make_sequence(model, "knorm:budget=600");
    const auto expected = test::feed_all(engine, right, tokens);
    Sequence legacy = test::make_sequence(model, "knorm:budget=600");
    EXPECT_TRUE(test::same_bits(feed_legacy(engine, legacy, tokens), expected)) << n_batch;
    EXPECT_EQ(legacy.evictions.count, 0);
    EXPECT_FALSE(legacy.evicted_during_prompt);
  }
}

// What is left after a chunk has few slots more than rows: evicted rows that still stand in theirs are no rows.
TEST(LegacyOrder, SlotsOfEvictedRowsAreNoRows) {
  const Cut cut{.budget = 100, .n_sink = 4, .n_recent = 25, .worth = by_norm};
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(130, model.hyper().n_vocab);
  PlainLegacyOrder plain(model, cut);
  Engine engine(model, {.n_threads = 1, .n_batch = 10});
  Sequence sequence = test::make_sequence(model, "knorm:budget=100,n_sink=4,n_recent=25");
  for (size_t fed = 0; fed < tokens.size(); fed += 10) {
    const auto chunk = std::span(tokens).subspan(fed, 10);
    const auto expected = plain.feed(chunk);
    const auto logits = feed_legacy(engine, sequence, chunk);
    for (size_t i = 0; i < logits.size(); ++i) {
      ASSERT_NEAR(logits[i], expected[i], 1e-4F) << fed;
    }
  }
  EXPECT_EQ(test::kept_positions(sequence.cache), plain.kept_positions());
}

TEST(LegacyOrder, ThreadsChangeNothing) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(200, model.hyper().n_vocab);
  std::vector<std::vector<float>> logits;
  for (const int n_threads : {1, 2, 5}) {
    Engine engine(model, {.n_threads = n_threads, .n_batch = 64});
    Sequence sequence = test::make_sequence(model, "lagkv+adakv:budget=50,lag=8,n_recent=10");
    logits.push_back(feed_legacy(engine, sequence, tokens));
    EXPECT_TRUE(test::same_bits(logits.back(), logits.front())) << n_threads;
  }
}

class TokenCounter final : public kernels::ActivationObserver {
 public:
  std::map<int, int> n_shown;

  void observe(const kernels::LayerActivations& shown, int thread,
               int /*n_threads*/) noexcept override {
    n_shown[shown.layer] += thread == 0 ? shown.n_tokens : 0;
  }
};

TEST(LegacyOrder, ShowsItsActivations) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(100, model.hyper().n_vocab);
  Engine engine(model, {.n_threads = 1, .n_batch = 32});
  Sequence sequence = test::make_sequence(model, "knorm:budget=50");
  TokenCounter counter;
  const Feed feed{.sequence = &sequence,
                  .tokens = tokens,
                  .logits = engine::WantedLogits::kNone,
                  .observer = &counter};
  engine.feed({&feed, 1}, {.eviction = PromptEviction::kLegacyOrder, .progress = {}});
  EXPECT_EQ(counter.n_shown, (std::map<int, int>{{0, 100}, {1, 100}}));
}

// By name, before anything is read.
TEST(LegacyOrder, RefusesPoliciesThatCannotActBeforeAttention) {
  const Model model(test::write_tiny_model(), {});
  const auto tokens = test::random_tokens(60, model.hyper().n_vocab);
  Engine engine(model, {.n_threads = 1, .n_batch = 32});
  const auto refusal = [&](const char* policy) {
    Sequence sequence = test::make_sequence(model, policy);
    const std::string message =
        test::error_of(ErrorCode::kInvalidArgument, [&] { feed_legacy(engine, sequence, tokens); });
    EXPECT_EQ(sequence.positions_fed, 0);
    EXPECT_TRUE(sequence.is_usable);
    EXPECT_NE(message.find("--legacy-order"), std::string::npos) << message;
    return message;
  };
  for (const char* policy :
       {"snapkv:budget=40,obs_window=8", "tova:budget=40", "h2o:budget=40",
        "expected-attention:budget=40", "knorm+squeeze:budget=40", "knorm+cake:budget=40"}) {
    const std::string name(policy, std::string_view(policy).find(':'));
    const std::string message = refusal(policy);
    EXPECT_NE(message.find("'" + name), std::string::npos) << message;
    EXPECT_NE(message.find("attention leaves behind"), std::string::npos) << message;
  }
  EXPECT_NE(refusal("knorm+pool:budget=40").find("all layers"), std::string::npos);
  EXPECT_NE(refusal("knorm:budget=40,positions=contiguous").find("contiguous"), std::string::npos);
  EXPECT_NE(refusal("full").find("evicts nothing"), std::string::npos);

  Sequence sequence = test::make_sequence(model, "knorm:budget=40");
  const Feed feed{.sequence = &sequence, .tokens = tokens};
  const std::string message = test::error_of(ErrorCode::kInvalidArgument, [&] {
    engine.feed({&feed, 1}, {.order = engine::PrefillOrder::kLayerMajor,
                             .eviction = PromptEviction::kLegacyOrder,
                             .progress = {}});
  });
  EXPECT_NE(message.find("chunk-major"), std::string::npos) << message;
  engine::Batch batch(engine, {.n_sequences = 1, .n_tokens = 8});
  EXPECT_NE(test::error_of(ErrorCode::kInvalidArgument,
                           [&] { batch.add(sequence, tokens, PromptEviction::kLegacyOrder); })
                .find("legacy order"),
            std::string::npos);
}

TEST(LegacyOrder, ASessionPlansItAndDoesNotSaveIt) {
  const Model model(test::write_tiny_model(), {});
  const engine::PromptTokens prompt{.document = test::random_tokens(200, model.hyper().n_vocab)};
  engine::Session session(
      model, policy::Policy::parse("knorm:budget=50"),
      {.evict = EvictWhen::kLegacyOrder, .order = {}, .engine = {.n_threads = 1, .n_batch = 64}});
  const engine::Plan plan = session.plan(prompt, 10);
  session.reserve(plan.max_rows);
  session.read(prompt, {});
  EXPECT_EQ(session.sequence()->cache.peak_bytes(), plan.kv_peak_bytes);
  EXPECT_LE(session.peak_footprint().compute_bytes(), plan.footprint.compute_bytes());
  const auto rows = session.sequence()->cache.now_bytes() / session.shape().row_bytes();
  EXPECT_EQ(rows, 50U * 4U);
  EXPECT_NE(test::error_of(ErrorCode::kInvalidArgument, [&] { session.save("never-written"); })
                .find("legacy order"),
            std::string::npos);
  EXPECT_EQ(session.generate({.n_predict = 8, .ignore_eos = true, .sampling = {}}, {}).n_generated,
            8);
}

}  // namespace
}  // namespace winnow
