// The graphs of every family give the same bits as libllama's.

#include <gtest/gtest.h>

#include <cstring>

#include "gguf.h"
#include "model/model.h"
#include "support/ggml_attention.h"
#include "support/libllama.h"
#include "support/models.h"
#include "support/tiny_model.h"

namespace winnow::model {
namespace {

using test::ggml_attention_logits;
using test::libllama_logits;
using test::TinyModelOptions;

std::vector<Token> example_tokens(const Model& model, size_t n) {
  std::string text;
  for (int i = 0; text.size() < 8 * n; ++i) {
    text += "The word number " + std::to_string(i * i) +
            " is \"naïve\": {\"key\": [1, 2]} and so on.\n";
  }
  std::vector<Token> tokens = model.vocabulary().tokenize(text, SpecialText::kPlain);
  tokens.resize(std::min(n, tokens.size()));
  return tokens;
}

void expect_same_bits(const std::vector<float>& ours, const std::vector<float>& theirs) {
  ASSERT_EQ(ours.size(), theirs.size());
  ASSERT_FALSE(ours.empty());
  if (std::memcmp(ours.data(), theirs.data(), ours.size() * sizeof(float)) == 0) {
    return;
  }
  size_t n_different = 0;
  float largest = 0;
  for (size_t i = 0; i < ours.size(); ++i) {
    n_different += ours[i] != theirs[i];
    largest = std::max(largest, std::abs(ours[i] - theirs[i]));
  }
  FAIL() << n_different << " of " << ours.size() << " logits differ, by up to " << largest;
}

void expect_bit_equal(const std::string& path, size_t n_tokens, int n_ubatch, int n_threads,
                      const RopeOptions& rope = {}) {
  SCOPED_TRACE("n_ubatch " + std::to_string(n_ubatch) + ", n_threads " + std::to_string(n_threads));
  const Model model(path, {.rope = rope});
  const std::vector<Token> tokens = example_tokens(model, n_tokens);
  ASSERT_EQ(tokens.size(), n_tokens);
  expect_same_bits(
      ggml_attention_logits(model, tokens, n_ubatch, n_threads),
      libllama_logits(path, tokens, {.n_ubatch = n_ubatch, .n_threads = n_threads, .rope = rope}));
}

struct TinyCase {
  const char* name;
  TinyModelOptions options;
};

void PrintTo(const TinyCase& tiny, std::ostream* out) {
  *out << tiny.name;
}

class TinyModelLogits : public testing::TestWithParam<TinyCase> {};

TEST_P(TinyModelLogits, AreLibllamasBits) {
  const std::string path = test::write_tiny_model(GetParam().options);
  expect_bit_equal(path, 300, 300, 1);
  expect_bit_equal(path, 300, 100, 2);
  expect_bit_equal(path, 30, 1, 1);
}

TinyModelOptions qwen2() {
  TinyModelOptions options;
  options.architecture = "qwen2";
  options.pre_tokenizer = "qwen2";
  return options;
}

TinyModelOptions qwen3() {
  TinyModelOptions options = qwen2();
  options.architecture = "qwen3";
  options.head_dim = 32;  // not n_embd / n_heads
  return options;
}

TinyModelOptions phi3() {
  TinyModelOptions options;
  options.architecture = "phi3";
  return options;
}

TinyModelOptions gemma3() {
  TinyModelOptions options;
  options.architecture = "gemma3";
  options.n_layers = 7;
  options.head_dim = 32;
  options.sentencepiece = true;
  options.swa_window = 40;
  return options;
}

void long_rope(TinyModelOptions& options, int n_ctx_orig) {
  options.rope_scaling = "longrope";
  options.rope_attn_factor = 1.19F;
  options.n_ctx_orig = n_ctx_orig;
  options.context_factors = true;
}

void yarn(TinyModelOptions& options, float factor, int n_ctx_orig) {
  options.rope_scaling = "yarn";
  options.rope_scale = factor;
  options.n_ctx_orig = n_ctx_orig;
}

TinyModelOptions with(TinyModelOptions options, void (*change)(TinyModelOptions&)) {
  change(options);
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Families, TinyModelLogits,
    testing::Values(
        TinyCase{"LlamaTied", {}},
        TinyCase{"LlamaUntied", with({}, [](auto& o) { o.tied = false; })},
        TinyCase{"LlamaOneHeadPerKvHead", with({}, [](auto& o) { o.n_kv_heads = 4; })},
        TinyCase{"LlamaOneKvHead", with({}, [](auto& o) { o.n_kv_heads = 1; })},
        TinyCase{"LlamaUnusualHeads",
                 with({}, [](auto& o) { o.n_heads = 3, o.n_kv_heads = 3, o.head_dim = 22; })},
        TinyCase{"LlamaBiases", with({}, [](auto& o) { o.qkv_bias = o.output_bias = true; })},
        TinyCase{"LlamaRopeFactors", with({}, [](auto& o) { o.rope_freqs = true; })},
        TinyCase{"LlamaLinearScaling", with({}, [](auto& o) { o.rope_scale = 4.0F; })},
        TinyCase{"LlamaYarn", with({}, [](auto& o) { yarn(o, 4.0F, 1024); })},
        TinyCase{"LlamaYarnWithoutOriginalContext", with({}, [](auto& o) { yarn(o, 8.0F, 0); })},
        TinyCase{"LlamaYarnAttnFactor", with({},
                                             [](auto& o) {
                                               yarn(o, 40.0F, 256);
                                               o.rope_attn_factor = 1.3F;
                                             })},
        TinyCase{"LlamaAttnFactorAlone", with({}, [](auto& o) { o.rope_attn_factor = 1.2F; })},
        TinyCase{"LlamaF16", with({}, [](auto& o) { o.matrix_type = GGML_TYPE_F16; })},
        TinyCase{"LlamaQ8", with({}, [](auto& o) { o.matrix_type = GGML_TYPE_Q8_0; })},
        TinyCase{"LlamaSentencePiece", with({}, [](auto& o) { o.sentencepiece = true; })},
        TinyCase{"LlamaFused", with({}, [](auto& o) { o.fused_qkv = true; })},
        TinyCase{"LlamaFusedBias", with({}, [](auto& o) { o.fused_qkv = o.qkv_bias = true; })},
        TinyCase{"LlamaFusedSeparateBiases", with({},
                                                  [](auto& o) {
                                                    o.fused_qkv = o.qkv_bias = true;
                                                    o.separate_biases = true;
                                                  })},
        TinyCase{"LlamaFusedUnusualHeads", with({},
                                                [](auto& o) {
                                                  o.fused_qkv = true;
                                                  o.n_heads = 3, o.n_kv_heads = 3, o.head_dim = 22;
                                                })},
        TinyCase{"Qwen2Tied", qwen2()},
        TinyCase{"Qwen2Untied", with(qwen2(), [](auto& o) { o.tied = false; })},
        TinyCase{"Qwen2OneHeadPerKvHead", with(qwen2(), [](auto& o) { o.n_kv_heads = 4; })},
        TinyCase{"Qwen2UnusualHeads",
                 with(qwen2(), [](auto& o) { o.n_embd = 60, o.n_heads = 6, o.head_dim = 10; })},
        TinyCase{"Qwen2Bf16", with(qwen2(), [](auto& o) { o.matrix_type = GGML_TYPE_BF16; })},
        TinyCase{"Qwen2Q4", with(qwen2(), [](auto& o) { o.matrix_type = GGML_TYPE_Q4_0; })},
        TinyCase{"Qwen2Fused", with(qwen2(), [](auto& o) { o.fused_qkv = true; })},
        TinyCase{"Qwen2FusedSeparateBiases",
                 with(qwen2(), [](auto& o) { o.fused_qkv = o.separate_biases = true; })},
        TinyCase{"Qwen2Yarn", with(qwen2(), [](auto& o) { yarn(o, 3.7F, 64); })},
        TinyCase{"Qwen2YarnBelowOne", with(qwen2(), [](auto& o) { yarn(o, 0.5F, 1024); })},
        TinyCase{"Qwen3Tied", qwen3()},
        TinyCase{"Qwen3Untied", with(qwen3(), [](auto& o) { o.tied = false; })},
        TinyCase{"Qwen3OneHeadPerKvHead", with(qwen3(), [](auto& o) { o.n_kv_heads = 4; })},
        TinyCase{"Qwen3UnusualHeads",
                 with(qwen3(), [](auto& o) { o.n_heads = 6, o.n_kv_heads = 3, o.head_dim = 10; })},
        TinyCase{"Qwen3Biases", with(qwen3(), [](auto& o) { o.qkv_bias = true; })},
        TinyCase{"Qwen3LinearScaling", with(qwen3(), [](auto& o) { o.rope_scale = 4.0F; })},
        TinyCase{"Qwen3Yarn", with(qwen3(), [](auto& o) { yarn(o, 4.0F, 512); })},
        TinyCase{"Qwen3F16", with(qwen3(), [](auto& o) { o.matrix_type = GGML_TYPE_F16; })},
        TinyCase{"Qwen3Fused", with(qwen3(), [](auto& o) { o.fused_qkv = true; })},
        TinyCase{"Qwen3FusedQ4", with(qwen3(),
                                      [](auto& o) {
                                        o.fused_qkv = true;
                                        o.matrix_type = GGML_TYPE_Q4_0;
                                      })},
        TinyCase{"Qwen3Q8", with(qwen3(), [](auto& o) { o.matrix_type = GGML_TYPE_Q8_0; })},
        TinyCase{"Phi3Tied", phi3()},
        TinyCase{"Phi3Untied", with(phi3(), [](auto& o) { o.tied = false; })},
        TinyCase{"Phi3OneKvHead", with(phi3(), [](auto& o) { o.n_kv_heads = 1; })},
        TinyCase{"Phi3PartialRotation", with(phi3(), [](auto& o) { o.n_rot = 12; })},
        TinyCase{"Phi3UnusualHeads", with(phi3(),
                                          [](auto& o) {
                                            o.n_embd = 66, o.n_heads = o.n_kv_heads = 3,
                                            o.head_dim = 22;
                                          })},
        // 300 tokens are beyond the original context, 30 within it; libllama rounds both up to 256s.
        TinyCase{"Phi3ContextFactors", with(phi3(), [](auto& o) { long_rope(o, 256); })},
        TinyCase{"Phi3ContextFactorsAtTheLimit", with(phi3(), [](auto& o) { long_rope(o, 300); })},
        TinyCase{"Phi3ContextFactorsWithin", with(phi3(), [](auto& o) { long_rope(o, 512); })},
        TinyCase{"Phi3ContextFactorsPartial",
                 with(phi3(), [](auto& o) { long_rope(o, 256), o.n_rot = 8; })},
        TinyCase{"Phi3Window", with(phi3(), [](auto& o) { o.swa_window = 16; })},
        TinyCase{"Phi3Biases", with(phi3(), [](auto& o) { o.qkv_bias = true; })},
        TinyCase{"Phi3Q8", with(phi3(), [](auto& o) { o.matrix_type = GGML_TYPE_Q8_0; })},
        TinyCase{"Gemma3", gemma3()},
        TinyCase{"Gemma3Untied", with(gemma3(), [](auto& o) { o.tied = false; })},
        TinyCase{"Gemma3WithoutWindow", with(gemma3(), [](auto& o) { o.swa_window = 0; })},
        TinyCase{"Gemma3WindowOfOne", with(gemma3(), [](auto& o) { o.swa_window = 1; })},
        TinyCase{"Gemma3WindowBeyondThePrompt",
                 with(gemma3(), [](auto& o) { o.swa_window = 301; })},
        TinyCase{"Gemma3Pattern",
                 with(gemma3(), [](auto& o) { o.n_layers = 5, o.swa_pattern = 2; })},
        TinyCase{"Gemma3AllLayersWindowed", with(gemma3(), [](auto& o) { o.n_layers = 5; })},
        TinyCase{"Gemma3OneHeadPerKvHead", with(gemma3(), [](auto& o) { o.n_kv_heads = 4; })},
        TinyCase{"Gemma3UnusualHeads",
                 with(gemma3(), [](auto& o) { o.n_heads = 6, o.n_kv_heads = 3, o.head_dim = 10; })},
        TinyCase{"Gemma3LinearScaling", with(gemma3(), [](auto& o) { o.rope_scale = 8.0F; })},
        TinyCase{"Gemma3Yarn", with(gemma3(), [](auto& o) { yarn(o, 4.0F, 64); })},
        TinyCase{"Gemma3Softcap", with(gemma3(), [](auto& o) { o.logit_softcap = 3.0F; })},
        TinyCase{"Gemma3LocalBase", with(gemma3(),
                                         [](auto& o) {
                                           o.edit = [](gguf_context* g) {
                                             gguf_set_val_f32(g, "gemma3.rope.freq_base_swa",
                                                              5000.0F);
                                           };
                                         })},
        TinyCase{"Gemma3QueryScaleOf27B",
                 with(gemma3(), [](auto& o) { o.n_layers = 62, o.head_dim = 32; })},
        TinyCase{"Gemma3Fused", with(gemma3(), [](auto& o) { o.fused_qkv = true; })},
        TinyCase{"Gemma3Q8", with(gemma3(), [](auto& o) { o.matrix_type = GGML_TYPE_Q8_0; })}),
    [](const auto& tiny) { return tiny.param.name; });

struct RopeCase {
  const char* name;
  RopeOptions rope;
};

void PrintTo(const RopeCase& rope, std::ostream* out) {
  *out << rope.name;
}

constexpr RopeCase kRopeCases[] = {
    {"None", {.scaling = RopeScaling::kNone}},
    {"Linear", {.scaling = RopeScaling::kLinear, .scale = 3.0F}},
    {"FreqScale", {.scaling = RopeScaling::kLinear, .freq_scale = 0.3F}},
    {"Base", {.freq_base = 160000.0F}},
    {"LinearAndBase", {.scaling = RopeScaling::kLinear, .scale = 0.5F, .freq_base = 5000.0F}},
    {"Yarn", {.scaling = RopeScaling::kYarn, .scale = 4.0F}},
    {"YarnBelowOne", {.scaling = RopeScaling::kYarn, .scale = 0.7F}},
    {"YarnOriginalContext",
     {.scaling = RopeScaling::kYarn, .freq_scale = 0.2F, .yarn_orig_ctx = 100}},
    {"YarnHalfExtrapolated",
     {.scaling = RopeScaling::kYarn, .scale = 8.0F, .yarn_ext_factor = 0.5F}},
    {"YarnInterpolated", {.scaling = RopeScaling::kYarn, .scale = 8.0F, .yarn_ext_factor = 0.0F}},
    {"YarnAttnFactor",
     {.scaling = RopeScaling::kYarn,
      .scale = 8.0F,
      .yarn_ext_factor = 0.0F,
      .yarn_attn_factor = 1.3F}},
    {"YarnBetas",
     {.scaling = RopeScaling::kYarn,
      .scale = 6.0F,
      .freq_base = 30000.0F,
      .yarn_orig_ctx = 512,
      .yarn_beta_slow = 2.0F,
      .yarn_beta_fast = 9.0F}},
};

class RopeOptionLogits : public testing::TestWithParam<RopeCase> {
 protected:
  void expect_bits_of(const TinyModelOptions& options) {
    expect_bit_equal(test::write_tiny_model(options), 300, 100, 1, GetParam().rope);
  }
};

TEST_P(RopeOptionLogits, OfLlamaAreLibllamasBits) {
  expect_bits_of({});
}
TEST_P(RopeOptionLogits, OfLlamaWithFactorsAreLibllamasBits) {
  expect_bits_of(with({}, [](auto& o) { o.rope_freqs = true; }));
}
TEST_P(RopeOptionLogits, OfALinearFileAreLibllamasBits) {
  expect_bits_of(with({}, [](auto& o) { o.rope_scale = 4.0F; }));
}
TEST_P(RopeOptionLogits, OfAYarnFileAreLibllamasBits) {
  expect_bits_of(with({}, [](auto& o) {
    yarn(o, 4.0F, 200);
    o.rope_attn_factor = 1.2F;
  }));
}
TEST_P(RopeOptionLogits, OfQwen2AreLibllamasBits) {
  expect_bits_of(qwen2());
}
TEST_P(RopeOptionLogits, OfQwen3AreLibllamasBits) {
  expect_bits_of(qwen3());
}
TEST_P(RopeOptionLogits, OfGemma3AreLibllamasBits) {
  expect_bits_of(gemma3());
}
TEST_P(RopeOptionLogits, OfPhi3AreLibllamasBits) {
  expect_bits_of(with(phi3(), [](auto& o) { o.n_rot = 12; }));
}
INSTANTIATE_TEST_SUITE_P(Options, RopeOptionLogits, testing::ValuesIn(kRopeCases),
                         [](const auto& rope) { return rope.param.name; });

// A file whose type is yarn needs no --rope-scaling.
TEST(RopeOptionLogits, OfAYarnFileWithAnotherScaleAreLibllamasBits) {
  const std::string path = test::write_tiny_model(with({}, [](auto& o) { yarn(o, 4.0F, 200); }));
  expect_bit_equal(path, 300, 100, 1, {.scale = 16.0F, .yarn_beta_fast = 20.0F});
}

TEST(RopeOptionLogits, OfSmolLm2AreLibllamasBits) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  expect_bit_equal(path, 60, 60, 1, {.scale = 4.0F});
  expect_bit_equal(path, 60, 60, 1, {.scaling = RopeScaling::kYarn, .scale = 4.0F});
}

// The cases differ: what an option changes must not go unnoticed.
TEST(RopeOptionLogits, DifferFromOneAnother) {
  const std::string path = test::write_tiny_model(with({}, [](auto& o) { o.rope_scale = 2.0F; }));
  std::vector<std::vector<float>> all;
  for (const RopeCase& rope : kRopeCases) {
    const Model model(path, {.rope = rope.rope});
    all.push_back(ggml_attention_logits(model, example_tokens(model, 60), 60, 1));
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      EXPECT_NE(all[i], all.back()) << rope.name << " is " << kRopeCases[i].name;
    }
  }
}

TEST(Logits, OfSmolLm2AreLibllamasBits) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  expect_bit_equal(path, 300, 300, 2);
  expect_bit_equal(path, 250, 100, 1);
}

TEST(Logits, OfGemma3AreLibllamasBits) {
  WINNOW_FIND_MODEL(path, test::kGemma3);
  expect_bit_equal(path, 600, 600, 2);  // longer than its window of 512
  expect_bit_equal(path, 560, 100, 1);
}

TEST(Logits, OfQwen2AreLibllamasBits) {
  WINNOW_FIND_MODEL(path, test::kQwen2);
  expect_bit_equal(path, 260, 260, 2);
  expect_bit_equal(path, 150, 100, 1);
}

}  // namespace
}  // namespace winnow::model
