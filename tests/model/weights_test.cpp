// Tensors are checked one by one, and expanded weights are the file's weights rounded once.

#include "model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/files.h"
#include "ggml-cpp.h"
#include "model/expect_error.h"
#include "support/ggml_attention.h"
#include "support/models.h"

namespace winnow::model {
namespace {

using test::expect_edit_error;
using test::expect_load_error;
using test::TinyModelOptions;

// Adds a tensor of zeros; ggml keeps the bytes until the file is written.
class ExtraTensor {
 public:
  ExtraTensor(const char* name, ggml_type type, int64_t n0, int64_t n1)
      : ctx_(ggml_init({.mem_size = 1 << 20, .mem_buffer = nullptr, .no_alloc = false})),
        tensor_(ggml_new_tensor_2d(ctx_.get(), type, n0, n1)) {
    std::memset(tensor_->data, 0, ggml_nbytes(tensor_));
    ggml_set_name(tensor_, name);
  }
  void add_to(gguf_context* gguf) const { gguf_add_tensor(gguf, tensor_); }

 private:
  ggml_context_ptr ctx_;
  ggml_tensor* tensor_;
};

TEST(Weights, RefusesMissingTensorsByName) {
  TinyModelOptions options;
  options.edit = [](gguf_context* g) { gguf_set_val_u32(g, "llama.block_count", 3); };
  expect_load_error(test::write_tiny_model(options), ErrorCode::kBadData,
                    "tensor 'blk.2.attn_norm.weight' is missing");
}

TEST(Weights, RefusesWrongShapes) {
  expect_edit_error([](gguf_context* g) { gguf_set_val_u32(g, "llama.feed_forward_length", 97); },
                    ErrorCode::kBadData,
                    "tensor 'blk.0.ffn_gate.weight' has the shape [64, 96, 1, 1] "
                    "(expected: [64, 97, 1, 1])");
}

TEST(Weights, RefusesTypesItCannotMultiplyWith) {
  const ExtraTensor output("output.weight", GGML_TYPE_I32, 64, 289);
  expect_edit_error(
      [&](gguf_context* g) { output.add_to(g); }, ErrorCode::kUnsupported,
      "tensor 'output.weight' is of type 'i32' (supported: f32, f16, bf16 and quantised");
  const ExtraTensor factors("rope_freqs.weight", GGML_TYPE_F16, 8, 1);
  expect_edit_error([&](gguf_context* g) { factors.add_to(g); }, ErrorCode::kUnsupported,
                    "tensor 'rope_freqs.weight' is of type 'f16' (supported: f32)");
}

TEST(Weights, RefusesTensorsThatHaveNoPlace) {
  const ExtraTensor extra("blk.0.attn_q_norm.weight", GGML_TYPE_F32, 16, 1);
  expect_edit_error([&](gguf_context* g) { extra.add_to(g); }, ErrorCode::kUnsupported,
                    "tensor 'blk.0.attn_q_norm.weight' has no place in the family 'llama'");
}

TEST(Weights, RefusesProjectionsThatAreThereTwice) {
  const ExtraTensor fused("blk.0.attn_qkv.weight", GGML_TYPE_F32, 64, 128);
  expect_edit_error([&](gguf_context* g) { fused.add_to(g); }, ErrorCode::kUnsupported,
                    "tensor 'blk.0.attn_q.weight' has no place in the family 'llama'");
}

TEST(Weights, RefusesOneSetOfContextFactors) {
  const ExtraTensor factors("rope_factors_short.weight", GGML_TYPE_F32, 8, 1);
  expect_edit_error([&](gguf_context* g) { factors.add_to(g); }, ErrorCode::kBadData,
                    "tensor 'rope_factors_long.weight' is missing", {.architecture = "phi3"});
  const ExtraTensor wrong("rope_factors_long.weight", GGML_TYPE_F32, 7, 1);
  expect_edit_error([&](gguf_context* g) { wrong.add_to(g); }, ErrorCode::kBadData,
                    "tensor 'rope_factors_long.weight' has the shape [7, 1, 1, 1]",
                    {.architecture = "phi3"});
}

TEST(Weights, RefusesSomeBiasesOfFusedProjections) {
  const ExtraTensor bias("blk.0.attn_k.bias", GGML_TYPE_F32, 32, 1);
  expect_edit_error([&](gguf_context* g) { bias.add_to(g); }, ErrorCode::kBadData,
                    "tensor 'blk.0.attn_q.bias' is missing", {.fused_qkv = true});
  const ExtraTensor wrong("blk.0.attn_qkv.bias", GGML_TYPE_F32, 64, 1);
  expect_edit_error([&](gguf_context* g) { wrong.add_to(g); }, ErrorCode::kBadData,
                    "tensor 'blk.0.attn_qkv.bias' has the shape [64, 1, 1, 1] "
                    "(expected: [128, 1, 1, 1])",
                    {.fused_qkv = true});
}

// A file of one family under the name of another has all tensors of the one and no more.
TinyModelOptions renamed(const std::string& from, const std::string& to) {
  TinyModelOptions options;
  options.architecture = from;
  options.edit = [from, to](gguf_context* g) {
    gguf_set_val_str(g, "general.architecture", to.c_str());
    for (const char* key :
         {"block_count", "context_length", "embedding_length", "feed_forward_length",
          "attention.head_count", "attention.head_count_kv"}) {
      const int64_t id = gguf_find_key(g, (from + "." + key).c_str());
      gguf_set_val_u32(g, (to + "." + key).c_str(), gguf_get_val_u32(g, id));
    }
    gguf_set_val_f32(g, (to + ".attention.layer_norm_rms_epsilon").c_str(), 1e-6F);
  };
  return options;
}

TEST(Weights, RefusesFamiliesWithoutTheirOwnTensors) {
  struct Case {
    const char* from;
    const char* to;
    const char* message;
  };
  const Case cases[] = {
      {"llama", "qwen2", "tensor 'blk.0.attn_q.bias' is missing"},
      {"llama", "qwen3", "tensor 'blk.0.attn_q_norm.weight' is missing"},
      {"llama", "phi3",
       "tensor 'blk.0.ffn_up.weight' has the shape [64, 96, 1, 1] (expected: [64, 192, 1, 1])"},
      {"qwen3", "gemma3", "tensor 'blk.0.post_attention_norm.weight' is missing"},
  };
  for (const Case& c : cases) {
    expect_load_error(test::write_tiny_model(renamed(c.from, c.to)), ErrorCode::kBadData,
                      c.message);
  }
}

TEST(WeightOption, ReadsItsNamesAndRefusesOthers) {
  for (const char* name :
       {"file", "f16", "bf16", "f32", "prompt-f16", "prompt-bf16", "prompt-f32"}) {
    EXPECT_STREQ(weight_option_name(parse_weight_option(name)), name);
  }
  EXPECT_EQ(parse_weight_option("prompt-f32").type, WeightType::kF32);
  EXPECT_EQ(test::error_of(ErrorCode::kInvalidArgument, [] { parse_weight_option("f8"); }),
            "unknown weight type 'f8' (allowed: file, f16, bf16, f32, prompt-f16, prompt-bf16, "
            "prompt-f32)");
  for (const char* name : {"", "auto", "prompt-", "prompt-file", "prompt-prompt-f16"}) {
    const std::string message =
        test::error_of(ErrorCode::kInvalidArgument, [&] { parse_weight_option(name, "auto"); });
    EXPECT_NE(message.find("allowed: auto, file, f16"), std::string::npos) << message;
  }
}

std::vector<float> floats_of(const ggml_tensor* tensor) {
  std::vector<float> values(static_cast<size_t>(ggml_nelements(tensor)));
  if (tensor->type == GGML_TYPE_F32) {
    std::memcpy(values.data(), tensor->data, ggml_nbytes(tensor));
  } else {
    ggml_get_type_traits(tensor->type)
        ->to_float(tensor->data, values.data(), ggml_nelements(tensor));
  }
  return values;
}

TEST(Weights, AreReadInPlaceUnlessTheyAreExpanded) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_Q8_0;
  const Model model(test::write_tiny_model(options), {});
  EXPECT_EQ(model.weights().expanded_bytes(), 0U);
  EXPECT_GT(model.weights().mapped_bytes(), 0U);
  const auto* data = static_cast<const std::byte*>(model.weights().token_embd->data);
  const std::span<const std::byte> file = model.file().file().bytes();
  EXPECT_TRUE(data >= file.data() && data < file.data() + file.size());
}

TEST(Weights, ExpandToTheFilesValuesRoundedOnce) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_Q4_1;
  options.tied = false;
  const std::string path = test::write_tiny_model(options);
  const Model stored(path, {});
  const std::pair<WeightType, float> roundings[] = {
      {WeightType::kF32, 0.0F}, {WeightType::kF16, 0x1p-11F}, {WeightType::kBf16, 0x1p-8F}};
  for (const auto& [type, rounding] : roundings) {
    const Model model(path, {.weights = {type}, .n_threads = 2});
    EXPECT_EQ(model.weights().expanded_bytes(), expansion_bytes(model.file(), {type}));
    const std::pair<ggml_tensor*, ggml_tensor*> pairs[] = {
        {stored.weights().token_embd, model.weights().token_embd},
        {stored.weights().output, model.weights().output},
        {stored.weights().layers[1].wk, model.weights().layers[1].wk},
        {stored.weights().layers[1].ffn_down, model.weights().layers[1].ffn_down}};
    for (const auto& [from, to] : pairs) {
      const std::vector<float> expected = floats_of(from);
      const std::vector<float> values = floats_of(to);
      ASSERT_EQ(values.size(), expected.size());
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_LE(std::abs(values[i] - expected[i]), std::abs(expected[i]) * rounding + 1e-7F)
            << weight_type_name(type) << " " << from->name << "[" << i << "]";
      }
    }
    EXPECT_EQ(model.weights().output_norm->type, GGML_TYPE_F32);
  }
}

TEST(Weights, ExpandedForPromptsAreThoseOfTheLayers) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_Q4_1;
  options.tied = false;
  const Model model(test::write_tiny_model(options),
                    {.weights = {WeightType::kBf16, /*is_for_prompts=*/true}, .n_threads = 2});
  const Weights& file = model.weights();
  const Weights& prompt = model.prompt_weights();
  EXPECT_EQ(prompt.token_embd, file.token_embd);
  EXPECT_EQ(prompt.output, file.output);
  for (size_t layer = 0; layer < file.layers.size(); ++layer) {
    EXPECT_EQ(prompt.layers[layer].attn_norm, file.layers[layer].attn_norm);
    for (ggml_tensor* LayerWeights::*const matrix :
         {&LayerWeights::wq, &LayerWeights::wk, &LayerWeights::wv, &LayerWeights::wo,
          &LayerWeights::ffn_gate, &LayerWeights::ffn_up, &LayerWeights::ffn_down}) {
      EXPECT_EQ((file.layers[layer].*matrix)->type, GGML_TYPE_Q4_1);
      EXPECT_EQ((prompt.layers[layer].*matrix)->type, GGML_TYPE_BF16);
    }
  }
  EXPECT_EQ(file.expanded_bytes(), 0U);
  EXPECT_EQ(model.expanded_bytes(), prompt.expanded_bytes());
  const Model same(test::write_tiny_model(options), {.weights = {WeightType::kBf16}});
  EXPECT_EQ(&same.weights(), &same.prompt_weights());
}

TEST(Weights, ExpandFusedProjections) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_F16;
  options.fused_qkv = true;
  const Model model(test::write_tiny_model(options), {.weights = {WeightType::kF32}});
  EXPECT_EQ(model.weights().layers[1].wqkv->type, GGML_TYPE_F32);
  EXPECT_EQ(model.weights().layers[1].wq, nullptr);
}

TEST(Weights, ExpandTheSameForAnyNumberOfThreads) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_Q8_0;
  const std::string path = test::write_tiny_model(options);
  const Model one(path, {.weights = {WeightType::kF16}, .n_threads = 1});
  const Model three(path, {.weights = {WeightType::kF16}, .n_threads = 3});
  for (size_t layer = 0; layer < one.weights().layers.size(); ++layer) {
    EXPECT_EQ(floats_of(one.weights().layers[layer].ffn_up),
              floats_of(three.weights().layers[layer].ffn_up));
  }
}

TEST(Weights, KeepWhatHasTheTypeAlready) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_F16;
  const Model model(test::write_tiny_model(options), {.weights = {WeightType::kF16}});
  EXPECT_EQ(model.weights().expanded_bytes(), 0U);
}

TEST(Weights, ExpandedToF32GiveNearlyTheSameLogits) {
  TinyModelOptions options;
  options.matrix_type = GGML_TYPE_F16;
  const std::string path = test::write_tiny_model(options);
  const Model stored(path, {});
  const Model expanded(path, {.weights = {WeightType::kF32}, .n_threads = 2});
  const std::vector<Token> tokens =
      stored.vocabulary().tokenize("the word and the other", SpecialText::kPlain);
  const std::vector<float> expected = test::ggml_attention_logits(stored, tokens, 64, 1);
  const std::vector<float> logits = test::ggml_attention_logits(expanded, tokens, 64, 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    ASSERT_NEAR(logits[i], expected[i], 0.02);  // f16 products round the activations too
  }
}

TEST(Weights, WarnWhenF16IsTooSmall) {
  const std::string path = test::write_tiny_model();
  // One weight of the file is made larger than f16 can say.
  const GgufFile file(path);
  const auto offset = static_cast<const char*>(file.find_tensor("blk.0.ffn_up.weight")->data) -
                      reinterpret_cast<const char*>(file.file().bytes().data());
  std::string bytes = read_text_file(path);
  const float large = 1e6F;
  std::memcpy(bytes.data() + offset, &large, sizeof large);
  const std::string large_path = test::temporary_path("large.gguf");
  write_file_atomically(large_path, bytes);
  testing::internal::CaptureStderr();
  const Model model(large_path, {.weights = {WeightType::kF16}});
  EXPECT_NE(testing::internal::GetCapturedStderr().find("1 weights are too large for f16"),
            std::string::npos);
  // What is not asked for by name stays out.
  Model unasked(large_path, {});
  EXPECT_EQ(unasked.expand_for_prompts(WeightType::kF16, 1), 1U);
  EXPECT_EQ(unasked.expanded_bytes(), 0U);
  EXPECT_EQ(&unasked.weights(), &unasked.prompt_weights());
}

}  // namespace
}  // namespace winnow::model
