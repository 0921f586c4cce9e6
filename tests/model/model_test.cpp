// Models that winnow cannot compute rightly are refused by name; the others say what they are.

#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>

#include "model/expect_error.h"
#include "support/models.h"

namespace winnow::model {
namespace {

using test::expect_edit_error;
using test::TinyModelOptions;

TEST(Model, ReadsItsHyperparameters) {
  TinyModelOptions options;
  options.rope_scale = 4.0F;
  const Model model(test::write_tiny_model(options), {});
  const Hyperparameters& hyper = model.hyper();
  EXPECT_EQ(hyper.architecture, "llama");
  EXPECT_EQ(hyper.n_layers, 2);
  EXPECT_EQ(hyper.n_embd, 64);
  EXPECT_EQ(hyper.n_heads, 4);
  EXPECT_EQ(hyper.n_kv_heads, 2);
  EXPECT_EQ(hyper.gqa_group_size(), 2);
  EXPECT_EQ(hyper.head_dim, 16);
  EXPECT_EQ(hyper.rope.n_rot, 16);
  EXPECT_EQ(hyper.n_ff, 96);
  EXPECT_EQ(hyper.n_vocab, model.vocabulary().n_tokens());
  EXPECT_EQ(hyper.n_ctx_train, 4096);
  EXPECT_EQ(hyper.rope.freq_base, 20000.0F);
  EXPECT_EQ(hyper.rope.freq_scale, 0.25F);
}

TEST(Model, OfSmolLm2IsWhatItsCardSays) {
  WINNOW_FIND_MODEL(path, test::kSmolLm2);
  const Model model(path, {});
  EXPECT_EQ(model.hyper().n_layers, 30);
  EXPECT_EQ(model.hyper().n_heads, 9);
  EXPECT_EQ(model.hyper().n_kv_heads, 3);
  EXPECT_EQ(model.hyper().head_dim, 64);
  EXPECT_EQ(model.weights().output, model.weights().token_embd);
}

TEST(Model, NamesTheSupportedArchitectures) {
  expect_edit_error(
      [](gguf_context* g) { gguf_set_val_str(g, "general.architecture", "mamba"); },
      ErrorCode::kUnsupported,
      "architecture 'mamba' is not supported (supported: llama: Llama 2 and 3, Mistral, SmolLM2; "
      "qwen2: Qwen2, Qwen2.5; qwen3: Qwen3; phi3: Phi-3, Phi-3.5, Phi-4-mini; gemma3: Gemma 3)");
}

TEST(Model, NamesMissingKeys) {
  for (const char* key :
       {"general.architecture", "llama.block_count", "llama.embedding_length",
        "llama.attention.head_count", "llama.feed_forward_length", "llama.context_length",
        "llama.attention.layer_norm_rms_epsilon", "tokenizer.ggml.model"}) {
    expect_edit_error([key](gguf_context* g) { gguf_remove_key(g, key); }, ErrorCode::kBadData,
                      "key '" + std::string(key) + "' is missing");
  }
}

TEST(Model, RefusesNumbersOutOfRange) {
  const std::pair<const char*, uint32_t> cases[] = {
      {"llama.block_count", 0},
      {"llama.block_count", 513},
      {"llama.embedding_length", 0},
      {"llama.attention.head_count", 0},
      {"llama.attention.head_count_kv", 0},
      {"llama.feed_forward_length", UINT32_MAX},
      {"llama.context_length", 0},
      {"llama.rope.scaling.original_context_length", 0},
      {"llama.rope.dimension_count", 0},
      {"llama.attention.key_length", 1 << 20}};
  for (const auto& wrong : cases) {
    expect_edit_error([&](gguf_context* g) { gguf_set_val_u32(g, wrong.first, wrong.second); },
                      ErrorCode::kBadData, "key '" + std::string(wrong.first) + "' is ");
  }
  expect_edit_error([](gguf_context* g) { gguf_set_val_f32(g, "llama.rope.freq_base", -1.0F); },
                    ErrorCode::kBadData, "llama.rope.freq_base");
  for (const char* key : {"llama.rope.scaling.factor", "llama.rope.scaling.attn_factor"}) {
    expect_edit_error([key](gguf_context* g) { gguf_set_val_f32(g, key, -2.0F); },
                      ErrorCode::kBadData, key);
  }
}

TEST(Model, RefusesNumbersThatDoNotFitTogether) {
  expect_edit_error(
      [](gguf_context* g) { gguf_set_val_u32(g, "llama.attention.head_count_kv", 3); },
      ErrorCode::kBadData, "4 heads cannot share 3 KV heads evenly");
  expect_edit_error([](gguf_context* g) { gguf_set_val_u32(g, "llama.attention.head_count", 5); },
                    ErrorCode::kBadData, "cannot be cut into 5 heads");
  expect_edit_error(
      [](gguf_context* g) {
        gguf_set_val_u32(g, "llama.attention.key_length", 15);
        gguf_set_val_u32(g, "llama.attention.value_length", 15);
      },
      ErrorCode::kBadData, "heads of length 15 cannot rotate");
}

TEST(Model, RefusesVariantsByName) {
  const std::pair<std::function<void(gguf_context*)>, const char*> cases[] = {
      {[](gguf_context* g) { gguf_set_val_u32(g, "llama.expert_count", 8); }, "mixture of experts"},
      {[](gguf_context* g) { gguf_set_val_bool(g, "llama.attention.causal", false); },
       "not causal"},
      {[](gguf_context* g) { gguf_set_val_str(g, "llama.rope.scaling.type", "dynamic"); },
       "rope scaling 'dynamic' (supported: none, linear, yarn)"},
      {[](gguf_context* g) { gguf_set_val_u32(g, "llama.attention.value_length", 32); },
       "keys of length 16 with values of length 32"},
      {[](gguf_context* g) { gguf_set_val_u32(g, "llama.rope.dimension_count", 8); },
       "rotation of 8 dimensions of heads of length 16"},
      {[](gguf_context* g) {
         const int32_t counts[] = {4, 2};
         gguf_set_arr_data(g, "llama.attention.head_count", GGUF_TYPE_INT32, counts, 2);
       },
       "'llama.attention.head_count' with a value per layer"},
  };
  for (const auto& [edit, expected] : cases) {
    expect_edit_error(edit, ErrorCode::kUnsupported, expected);
  }
}

TEST(Model, RotatesSomeDimensionsOfAPhi3Head) {
  TinyModelOptions options;
  options.architecture = "phi3";
  options.n_rot = 10;
  EXPECT_EQ(Model(test::write_tiny_model(options), {}).hyper().rope.n_rot, 10);
  for (const int n_rot : {9, 18}) {
    options.n_rot = n_rot;
    test::expect_load_error(
        test::write_tiny_model(options), ErrorCode::kBadData,
        std::to_string(n_rot) + " dimensions of heads of length 16 cannot rotate");
  }
}

TEST(Model, KnowsLongRopeOnlyWhereTheFamilyHasItsFactors) {
  TinyModelOptions options;
  options.rope_scaling = "longrope";
  test::expect_load_error(test::write_tiny_model(options), ErrorCode::kUnsupported,
                          "rope scaling 'longrope' (supported: none, linear, yarn)");
  options.architecture = "phi3";
  EXPECT_EQ(Model(test::write_tiny_model(options), {}).hyper().rope.ext_factor, 0.0F);
  options.rope_scaling = "su";
  test::expect_load_error(test::write_tiny_model(options), ErrorCode::kUnsupported,
                          "rope scaling 'su' (supported: none, linear, yarn, longrope)");
}

TinyModelOptions gemma3() {
  TinyModelOptions options;
  options.architecture = "gemma3";
  options.n_layers = 7;
  options.head_dim = 32;
  options.swa_window = 100;
  return options;
}

TEST(Model, ReadsTheWindowsOfGemma3) {
  TinyModelOptions options = gemma3();
  options.rope_scale = 8.0F;
  options.logit_softcap = 30.0F;
  const Model model(test::write_tiny_model(options), {});
  const Hyperparameters& hyper = model.hyper();
  EXPECT_EQ(hyper.swa_windows, (std::vector{100, 100, 100, 100, 100, 0, 100}));
  EXPECT_EQ(hyper.rope_of(5).freq_base, 20000.0F);
  EXPECT_EQ(hyper.rope_of(5).freq_scale, 0.125F);
  EXPECT_EQ(hyper.rope_of(6).freq_base, 10000.0F);
  EXPECT_EQ(hyper.rope_of(6).freq_scale, 1.0F);
  EXPECT_EQ(hyper.embedding_scale, 8.0F);  // sqrt(64)
  EXPECT_EQ(hyper.logit_softcap, 30.0F);
  EXPECT_FLOAT_EQ(hyper.query_scale, 1.0F / std::sqrt(32.0F));
  options.n_layers = 62;  // as the 27B model has
  EXPECT_FLOAT_EQ(Model(test::write_tiny_model(options), {}).hyper().query_scale, 0.25F);
}

TEST(Model, RefusesWindowsItCannotRead) {
  const std::string key = "gemma3.attention.sliding_window_pattern";
  expect_edit_error([&](gguf_context* g) { gguf_set_val_u32(g, key.c_str(), 0); },
                    ErrorCode::kBadData, key, gemma3());
  expect_edit_error(
      [&](gguf_context* g) {
        const bool pattern[7] = {};
        gguf_set_arr_data(g, key.c_str(), GGUF_TYPE_BOOL, pattern, 7);
      },
      ErrorCode::kUnsupported, "'" + key + "' with a value per layer", gemma3());
}

TEST(Model, SaysThatItIgnoresAWindowWhereLibllamaDoes) {
  TinyModelOptions options;
  options.architecture = "phi3";
  options.swa_window = 100;
  testing::internal::CaptureStderr();
  EXPECT_EQ(Model(test::write_tiny_model(options), {}).hyper().swa_windows, (std::vector{0, 0}));
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "sliding attention window of 100 positions is not applied"),
            std::string::npos);
}

TEST(Model, ReadsTheOldNameOfLinearScaling) {
  TinyModelOptions options;
  options.edit = [](gguf_context* g) { gguf_set_val_f32(g, "llama.rope.scale_linear", 8.0F); };
  EXPECT_EQ(Model(test::write_tiny_model(options), {}).hyper().rope.freq_scale, 0.125F);
}

TEST(Model, IgnoresAScalingFactorOfTypeNone) {
  TinyModelOptions options;
  options.rope_scale = 8.0F;
  options.edit = [](gguf_context* g) { gguf_set_val_str(g, "llama.rope.scaling.type", "none"); };
  EXPECT_EQ(Model(test::write_tiny_model(options), {}).hyper().rope.freq_scale, 1.0F);
}

TEST(Model, ReadsYarn) {
  TinyModelOptions options;
  options.rope_scale = 4.0F;
  options.rope_scaling = "yarn";
  options.rope_attn_factor = 1.25F;
  options.n_ctx_orig = 1024;
  const Model yarn(test::write_tiny_model(options), {});
  EXPECT_EQ(yarn.hyper().rope.freq_scale, 0.25F);
  EXPECT_EQ(yarn.hyper().rope.ext_factor, 1.0F);
  EXPECT_FLOAT_EQ(yarn.hyper().rope.attn_factor, 1.25F);  // the magnitude is ggml's
  EXPECT_EQ(yarn.hyper().rope.n_ctx_orig, 1024);
  const Rope plain = Model(test::write_tiny_model(), {}).hyper().rope;
  EXPECT_EQ(plain.ext_factor, 0.0F);
  EXPECT_EQ(plain.attn_factor, 1.0F);
  EXPECT_EQ(plain.n_ctx_orig, 4096);
}

TEST(Model, RefusesAVocabularyOfAnotherLength) {
  expect_edit_error(
      [](gguf_context* g) {
        const char* tokens[] = {"a", "b"};
        gguf_set_arr_str(g, "tokenizer.ggml.tokens", tokens, 2);
        gguf_remove_key(g, "tokenizer.ggml.token_type");
        gguf_remove_key(g, "tokenizer.ggml.bos_token_id");
        gguf_remove_key(g, "tokenizer.ggml.eos_token_id");
      },
      ErrorCode::kBadData, "has 2 tokens, but there are 289 embeddings");
}

}  // namespace
}  // namespace winnow::model
