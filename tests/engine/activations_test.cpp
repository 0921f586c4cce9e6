// What observers are shown: against a first layer written down plainly, against the cache, and for any way to cut a text.

#include "kernels/activations.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "engine/session.h"
#include "support/generate.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;

// Everything that was shown of a layer, [n_tokens, heads, head_dim] each.
struct Shown {
  std::vector<float> queries, queries_before, keys, keys_before, values;
  int n_tokens = 0;

  bool operator==(const Shown&) const = default;
};

class Recorder final : public kernels::ActivationObserver {
 public:
  std::map<int, Shown> layers;

  void observe(const kernels::LayerActivations& shown, int thread,
               int /*n_threads*/) noexcept override {
    if (thread != 0) {
      return;
    }
    Shown& layer = layers[shown.layer];
    EXPECT_EQ(shown.first_pos, layer.n_tokens);
    EXPECT_EQ(shown.first_rotation, layer.n_tokens);
    layer.n_tokens += shown.n_tokens;
    const auto dim = static_cast<size_t>(shown.shape.head_dim);
    const size_t n_rot = shown.rotation->n_rot();
    std::vector<float> turns(static_cast<size_t>(shown.n_tokens) * n_rot);
    kernels::activation_turns(shown, turns);
    std::vector<float> before(dim);
    const auto add_rotated = [&](int token, const float* x, std::vector<float>& rotated,
                                 std::vector<float>& unrotated) {
      rotated.insert(rotated.end(), x, x + dim);
      const std::span<const float> by(turns.data() + static_cast<size_t>(token) * n_rot, n_rot);
      kernels::before_rotation(*shown.rotation, by, x, before);
      unrotated.insert(unrotated.end(), before.begin(), before.end());
    };
    for (int token = 0; token < shown.n_tokens; ++token) {
      for (int head = 0; head < shown.shape.n_heads; ++head) {
        add_rotated(token, shown.query(token, head), layer.queries, layer.queries_before);
      }
      for (int head = 0; head < shown.shape.n_kv_heads; ++head) {
        add_rotated(token, shown.key(token, head), layer.keys, layer.keys_before);
        layer.values.insert(layer.values.end(), shown.value(token, head),
                            shown.value(token, head) + dim);
      }
    }
  }
};

struct Cutting {
  int n_batch = 512;
  int n_threads = 1;
  PrefillOrder order = PrefillOrder::kChunkMajor;
  int n_first = 0;  // tokens of a feed of their own before the rest
};

std::map<int, Shown> observe(const Model& model, const std::vector<int32_t>& tokens,
                             const Cutting& how, Sequence& sequence) {
  Engine engine(model, {.n_threads = how.n_threads, .n_batch = how.n_batch});
  Recorder recorder;
  const std::span<const int32_t> all(tokens);
  const auto n_first = static_cast<size_t>(how.n_first);
  for (const std::span<const int32_t> part : {all.first(n_first), all.subspan(n_first)}) {
    if (!part.empty()) {
      const engine::Feed feed{.sequence = &sequence,
                              .tokens = part,
                              .logits = engine::WantedLogits::kNone,
                              .observer = &recorder};
      engine.feed({&feed, 1}, {.order = how.order, .progress = {}});
    }
  }
  return recorder.layers;
}

std::map<int, Shown> observe(const Model& model, const std::vector<int32_t>& tokens,
                             const Cutting& how = {}) {
  Sequence sequence = test::make_sequence(model);
  return observe(model, tokens, how, sequence);
}

// ---- The first layer, plainly ----

using Vector = std::vector<double>;

const float* floats(const ggml_tensor* tensor) {
  return static_cast<const float*>(tensor->data);
}

Vector normed(const Vector& x, const ggml_tensor* weight, double epsilon) {
  double square = 0;
  for (const double each : x) {
    square += each * each;
  }
  const double scale = 1 / std::sqrt(square / static_cast<double>(x.size()) + epsilon);
  Vector y(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    y[i] = x[i] * scale * static_cast<double>(floats(weight)[i]);
  }
  return y;
}

// Head `head` of the rows of `weight` [n_in, …], with bias or null.
Vector project(const Vector& x, const ggml_tensor* weight, const ggml_tensor* bias, int head,
               int head_dim) {
  Vector y(static_cast<size_t>(head_dim));
  for (size_t c = 0; c < y.size(); ++c) {
    const size_t row = static_cast<size_t>(head * head_dim) + c;
    y[c] = bias == nullptr ? 0 : static_cast<double>(floats(bias)[row]);
    for (size_t i = 0; i < x.size(); ++i) {
      y[c] += x[i] * static_cast<double>(floats(weight)[row * x.size() + i]);
    }
  }
  return y;
}

Vector rotated(const Vector& x, const model::Rope& rope, int pos) {
  Vector y = x;
  const auto n_pairs = static_cast<size_t>(rope.n_rot / 2);
  for (size_t i = 0; i < n_pairs; ++i) {
    const double angle = pos * std::pow(static_cast<double>(rope.freq_base),
                                        -2.0 * static_cast<double>(i) / rope.n_rot);
    const size_t a = rope.mode == 0 ? 2 * i : i;
    const size_t b = rope.mode == 0 ? 2 * i + 1 : i + n_pairs;
    y[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    y[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
  }
  return y;
}

void expect_near(const Vector& expected, const std::vector<float>& shown, size_t at) {
  for (size_t c = 0; c < expected.size(); ++c) {
    ASSERT_NEAR(shown[at + c], expected[c], 2e-4) << at << " + " << c;
  }
}

class ActivationsOfFamily : public testing::TestWithParam<test::TinyModelOptions> {};

TEST_P(ActivationsOfFamily, AreThoseOfAPlainFirstLayer) {
  const Model model(test::write_tiny_model(GetParam()), {});
  const model::Hyperparameters& hyper = model.hyper();
  const model::LayerWeights& w = model.weights().layers[0];
  const std::vector<int32_t> tokens = test::random_tokens(50, hyper.n_vocab);
  const Shown shown = observe(model, tokens)[0];
  const auto dim = static_cast<size_t>(hyper.head_dim);
  const double query_scale =
      model.family().scales_queries ? static_cast<double>(hyper.query_scale) : 1;
  ASSERT_EQ(shown.queries.size(), tokens.size() * static_cast<size_t>(hyper.n_heads) * dim);
  for (size_t token = 0; token < tokens.size(); ++token) {
    Vector x(static_cast<size_t>(hyper.n_embd));
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<double>(floats(
                 model.weights().token_embd)[static_cast<size_t>(tokens[token]) * x.size() + i]) *
             static_cast<double>(hyper.embedding_scale);
    }
    x = normed(x, w.attn_norm, hyper.rms_epsilon);
    const auto pos = static_cast<int>(token);
    const auto check = [&](const ggml_tensor* weight, const ggml_tensor* bias,
                           const ggml_tensor* norm, int first_head, int n_heads, double scale,
                           const std::vector<float>& after, const std::vector<float>& before) {
      for (int head = 0; head < n_heads; ++head) {
        Vector y = project(x, w.wqkv != nullptr ? w.wqkv : weight, bias,
                           (w.wqkv != nullptr ? first_head : 0) + head, hyper.head_dim);
        if (norm != nullptr) {
          y = normed(y, norm, hyper.rms_epsilon);
        }
        for (double& each : y) {
          each *= scale;
        }
        const size_t at = (token * static_cast<size_t>(n_heads) + static_cast<size_t>(head)) * dim;
        expect_near(y, before, at);
        expect_near(&after == &before ? y : rotated(y, hyper.rope_of(0), pos), after, at);
      }
    };
    check(w.wq, w.bq, w.attn_q_norm, 0, hyper.n_heads, query_scale, shown.queries,
          shown.queries_before);
    check(w.wk, w.bk, w.attn_k_norm, hyper.n_heads, hyper.n_kv_heads, 1, shown.keys,
          shown.keys_before);
    check(w.wv, w.bv, nullptr, hyper.n_heads + hyper.n_kv_heads, hyper.n_kv_heads, 1, shown.values,
          shown.values);
  }
}

TEST_P(ActivationsOfFamily, DoNotDependOnHowATextIsCut) {
  const Model model(test::write_tiny_model(GetParam()), {});
  const std::vector<int32_t> tokens = test::random_tokens(70, model.hyper().n_vocab);
  const std::map<int, Shown> whole = observe(model, tokens);
  ASSERT_EQ(whole.size(), static_cast<size_t>(model.hyper().n_layers));
  EXPECT_EQ(observe(model, tokens, {.n_batch = 16, .n_threads = 2}), whole);
  EXPECT_EQ(observe(model, tokens, {.n_batch = 33, .order = PrefillOrder::kLayerMajor}), whole);
  EXPECT_EQ(observe(model, tokens, {.n_batch = 40, .n_first = 3}), whole);
}

// In every layer: what the cache holds is what was shown.
TEST_P(ActivationsOfFamily, AreWhatTheCacheHolds) {
  const Model model(test::write_tiny_model(GetParam()), {});
  const std::vector<int32_t> tokens = test::random_tokens(30, model.hyper().n_vocab);
  Sequence sequence = test::make_sequence(model);
  const std::map<int, Shown> layers = observe(model, tokens, {.n_batch = 16}, sequence);
  const auto dim = static_cast<size_t>(model.hyper().head_dim);
  const auto n_kv_heads = static_cast<size_t>(model.hyper().n_kv_heads);
  for (const auto& [layer, shown] : layers) {
    for (size_t kv_head = 0; kv_head < n_kv_heads; ++kv_head) {
      const cache::HeadRows rows = sequence.cache.rows(layer, static_cast<int>(kv_head));
      ASSERT_EQ(rows.n, std::ssize(tokens));
      for (size_t token = 0; token < tokens.size(); ++token) {
        const size_t at = (token * n_kv_heads + kv_head) * dim;
        const size_t row = token * dim;
        const std::span<const float> keys(shown.keys.data() + at, dim);
        const std::span<const float> values(shown.values.data() + at, dim);
        EXPECT_TRUE(test::same_bits(keys, {reinterpret_cast<const float*>(rows.keys) + row, dim}));
        EXPECT_TRUE(
            test::same_bits(values, {reinterpret_cast<const float*>(rows.values) + row, dim}));
      }
    }
  }
}

test::TinyModelOptions gemma3() {
  test::TinyModelOptions options = test::windowed_model();
  options.n_layers = 2;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Families, ActivationsOfFamily,
    testing::Values(test::TinyModelOptions{}, test::TinyModelOptions{.architecture = "qwen2"},
                    test::TinyModelOptions{.architecture = "qwen3", .head_dim = 32},
                    test::TinyModelOptions{.architecture = "phi3", .n_rot = 8}, gemma3()),
    [](const auto& family) { return family.param.architecture; });

TEST(Activations, AreOnlyShownToThoseWhoAsk) {
  const Model model(test::write_tiny_model(), {});
  Engine engine(model, {});
  Sequence observed = test::make_sequence(model);
  Sequence other = test::make_sequence(model);
  Recorder recorder;
  const std::vector<int32_t> tokens = test::random_tokens(20, model.hyper().n_vocab);
  const std::vector<engine::Feed> feeds{
      {.sequence = &other, .tokens = tokens},
      {.sequence = &observed, .tokens = tokens, .observer = &recorder}};
  const auto logits = engine.feed(feeds, {});
  EXPECT_EQ(recorder.layers[0].n_tokens, 20);
  EXPECT_EQ(recorder.layers, observe(model, tokens));
  EXPECT_TRUE(test::same_bits(logits[0], logits[1]));
}

}  // namespace
}  // namespace winnow
