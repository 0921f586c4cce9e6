// The product's attention agrees with plain ggml attention on every family.

#include <gtest/gtest.h>

#include "support/generate.h"
#include "support/ggml_attention.h"
#include "support/tiny_model.h"

namespace winnow {
namespace {

using engine::Engine;
using engine::PrefillOrder;
using engine::Sequence;
using model::Model;
using test::TinyModelOptions;

// A prompt, then tokens one by one; the cache and the weights are f32, so that nothing but the order of sums differs.
void expect_agreement(const TinyModelOptions& options) {
  SCOPED_TRACE(options.architecture);
  const Model model(test::write_tiny_model(options), {});
  const auto n_vocab = static_cast<size_t>(model.hyper().n_vocab);
  const auto tokens = test::random_tokens(300, model.hyper().n_vocab);
  const std::span<const int32_t> all(tokens);
  const auto reference = test::ggml_attention_logits(model, tokens, 100, 1);
  for (const PrefillOrder order : {PrefillOrder::kChunkMajor, PrefillOrder::kLayerMajor}) {
    Engine engine(model, {.n_threads = 1, .n_batch = 64});
    Sequence sequence = test::make_sequence(model);
    auto logits = test::feed_all(engine, sequence, all.first(280), order);
    const auto decoded = test::decode_all(engine, sequence, all.subspan(280));
    logits.insert(logits.end(), decoded.begin(), decoded.end());
    EXPECT_LE(test::mean_kl(reference, logits, n_vocab), 1e-8);
  }
}

TEST(Families, AgreeWithPlainAttention) {
  expect_agreement({});
  expect_agreement({.fused_qkv = true});
  expect_agreement({.architecture = "qwen2"});
  expect_agreement({.architecture = "qwen2", .fused_qkv = true});
  expect_agreement({.architecture = "qwen3", .head_dim = 32});
  expect_agreement({.architecture = "qwen3", .head_dim = 32, .fused_qkv = true});
  expect_agreement({.architecture = "phi3", .n_rot = 12});
  expect_agreement({.architecture = "gemma3", .n_layers = 7, .head_dim = 32, .swa_window = 40});
}

// The factors are chosen by the context, not by how much of it is used.
TEST(Families, TakeRotationFactorsOfTheSessionsContext) {
  const Model model(test::write_tiny_model({.architecture = "phi3",
                                            .n_ctx_train = 4096,
                                            .context_factors = true,
                                            .n_ctx_orig = 1024}),
                    {});
  const auto tokens = test::random_tokens(100, model.hyper().n_vocab);
  const auto logits_of = [&](int n_ctx) {
    Engine engine(model, {.n_threads = 1, .n_ctx = n_ctx});
    Sequence sequence = test::make_sequence(model);
    return test::feed_all(engine, sequence, tokens);
  };
  const auto within = logits_of(1024);
  EXPECT_TRUE(test::same_bits(within, logits_of(100)));
  const auto beyond = logits_of(1025);
  EXPECT_FALSE(test::same_bits(within, beyond));
  EXPECT_TRUE(test::same_bits(beyond, logits_of(0)));  // as long as it was trained for
}

}  // namespace
}  // namespace winnow
