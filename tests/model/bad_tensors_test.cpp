// Every tensor of every family, missing, of another shape or of another type: refused, with its name, what it is and
// what it should be.

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "model/expect_error.h"

namespace winnow::model {
namespace {

using test::TensorPlan;
using test::TinyModelOptions;

std::string shape(std::vector<int64_t> ne) {
  ne.resize(4, 1);
  std::string text;
  for (const int64_t n : ne) {
    text += (text.empty() ? "[" : ", ") + std::to_string(n);
  }
  return text + "]";
}

// All tensors that a family knows are in these files; those in `optional` may be left out one by one.
struct FamilyCase {
  TinyModelOptions options;
  std::set<std::string> optional;
};

FamilyCase family_case(const std::string& name) {
  FamilyCase family{.options = {.n_layers = 1,
                                .n_embd = 32,
                                .n_heads = 4,
                                .n_kv_heads = 2,
                                .head_dim = 12,
                                .n_ff = 40,
                                .tied = false},
                    .optional = {"output.weight"}};
  TinyModelOptions& options = family.options;
  options.architecture = name.substr(0, name.find('_'));
  if (name == "llama") {
    options.qkv_bias = true;
    options.output_bias = true;
    options.rope_freqs = true;
    family.optional.insert({"rope_freqs.weight", "blk.0.attn_q.bias", "blk.0.attn_k.bias",
                            "blk.0.attn_v.bias", "blk.0.attn_output.bias"});
  } else if (name == "llama_fused") {
    options.fused_qkv = true;
    options.qkv_bias = true;
    family.optional.insert("blk.0.attn_qkv.bias");
  } else if (name == "phi3") {
    options.context_factors = true;
  }
  return family;
}

class BadTensors : public ::testing::TestWithParam<const char*> {
 protected:
  BadTensors() {
    TinyModelOptions options = family_.options;
    options.edit_tensor = [this](TensorPlan& tensor) {
      tensors_.push_back(tensor);
      return true;
    };
    const Model sound(test::write_tiny_model(options), {});
  }

  // A file in which `edit` has changed the tensor, or left it out.
  std::string write_edited(const TensorPlan& tensor,
                           const std::function<bool(TensorPlan&)>& edit) const {
    TinyModelOptions options = family_.options;
    options.edit_tensor = [&](TensorPlan& each) { return each.name != tensor.name || edit(each); };
    return test::write_tiny_model(options);
  }

  FamilyCase family_ = family_case(GetParam());
  std::vector<TensorPlan> tensors_;
};

TEST_P(BadTensors, MissingOnesAreNamed) {
  for (const TensorPlan& tensor : tensors_) {
    const std::string path = write_edited(tensor, [](TensorPlan&) { return false; });
    if (family_.optional.contains(tensor.name)) {
      EXPECT_NO_THROW(Model(path, {})) << tensor.name;
    } else {
      // Without the fused projection the three are looked for.
      const bool is_fused = tensor.name == "blk.0.attn_qkv.weight";
      test::expect_load_error(
          path, ErrorCode::kBadData,
          "tensor '" + (is_fused ? "blk.0.attn_q.weight" : tensor.name) + "' is missing");
    }
  }
}

TEST_P(BadTensors, OfAnotherShapeAreNamedWithBoth) {
  for (const TensorPlan& tensor : tensors_) {
    std::vector<std::vector<int64_t>> shapes;
    for (size_t d = 0; d < tensor.ne.size(); ++d) {
      for (const int64_t n : {tensor.ne[d] - 1, tensor.ne[d] + 1, 2 * tensor.ne[d]}) {
        shapes.push_back(tensor.ne);
        shapes.back()[d] = n;
      }
    }
    shapes.push_back(tensor.ne);
    shapes.back().push_back(2);
    if (tensor.ne.size() == 2 && tensor.ne[0] != tensor.ne[1]) {
      shapes.push_back({tensor.ne[1], tensor.ne[0]});
    }
    for (const std::vector<int64_t>& ne : shapes) {
      const std::string path = write_edited(tensor, [&](TensorPlan& each) {
        each.ne = ne;
        return true;
      });
      // The embeddings say how many tokens there are, and the vocabulary contradicts.
      const bool says_n_vocab =
          tensor.name == "token_embd.weight" && ne.size() == 2 && ne[1] != tensor.ne[1];
      test::expect_load_error(
          path, ErrorCode::kBadData,
          says_n_vocab ? "the vocabulary has " + std::to_string(tensor.ne[1]) +
                             " tokens, but there are " + std::to_string(ne[1]) + " embeddings"
                       : "tensor '" + tensor.name + "' has the shape " + shape(ne) +
                             " (expected: " + shape(tensor.ne) + ")");
    }
  }
}

TEST_P(BadTensors, OfAnotherTypeAreNamedWithWhatIsSupported) {
  for (const TensorPlan& tensor : tensors_) {
    const bool is_matrix = tensor.ne.size() == 2;
    const std::vector<std::pair<ggml_type, const char*>> types =
        is_matrix ? std::vector<std::pair<ggml_type, const char*>>{{GGML_TYPE_I32, "i32"},
                                                                   {GGML_TYPE_F64, "f64"},
                                                                   {GGML_TYPE_I8, "i8"}}
                  : std::vector<std::pair<ggml_type, const char*>>{
                        {GGML_TYPE_F16, "f16"}, {GGML_TYPE_BF16, "bf16"}, {GGML_TYPE_I32, "i32"}};
    for (const auto& [type, name] : types) {
      const std::string path = write_edited(tensor, [type = type](TensorPlan& each) {
        each.type = type;
        return true;
      });
      test::expect_load_error(
          path, ErrorCode::kUnsupported,
          "tensor '" + tensor.name + "' is of type '" + name + "'" +
              (is_matrix ? " (supported: f32, f16, bf16 and quantised types that ggml multiplies)"
                         : " (supported: f32)"));
    }
  }
}

TEST_P(BadTensors, UnknownRopeTypesAreNamed) {
  for (const char* type : {"dynamic", "YARN", "su", ""}) {
    TinyModelOptions options = family_.options;
    options.rope_scaling = type;
    test::expect_load_error(
        test::write_tiny_model(options), ErrorCode::kUnsupported,
        "rope scaling '" + std::string(type) + "' (supported: none, linear, yarn");
  }
}

INSTANTIATE_TEST_SUITE_P(Families, BadTensors,
                         ::testing::Values("llama", "llama_fused", "qwen2", "qwen3", "phi3",
                                           "gemma3"),
                         [](const auto& each) { return std::string(each.param); });

TEST(BadFamily, NeighboursOfSupportedOnesAreRefusedByName) {
  for (const char* name : {"llama4", "qwen2moe", "qwen3moe", "phi2", "phimoe", "gemma", "gemma2",
                           "gemma3n", "LLAMA", ""}) {
    test::expect_edit_error(
        [&](gguf_context* g) { gguf_set_val_str(g, "general.architecture", name); },
        ErrorCode::kUnsupported,
        "architecture '" + std::string(name) + "' is not supported (supported: llama: ");
  }
}

}  // namespace
}  // namespace winnow::model
