#include "model/weights.h"

#include <unordered_map>

#include "base/error.h"
#include "base/memory.h"
#include "base/name_table.h"
#include "base/stopwatch.h"
#include "ggml-alloc.h"
#include "ggml-cpp.h"
#include "model/families.h"
#include "model/tensor_lookup.h"
#include "model/weight_expansion.h"

namespace winnow::model {
namespace {

constexpr NameTable<WeightOption, 7> kWeightOptions{
    "weight type",
    {{{.type = WeightType::kFile}, "file"},
     {{.type = WeightType::kF16}, "f16"},
     {{.type = WeightType::kBf16}, "bf16"},
     {{.type = WeightType::kF32}, "f32"},
     {{.type = WeightType::kF16, .is_for_prompts = true}, "prompt-f16"},
     {{.type = WeightType::kBf16, .is_for_prompts = true}, "prompt-bf16"},
     {{.type = WeightType::kF32, .is_for_prompts = true}, "prompt-f32"}}};

// q, k and v come as three matrices or as one of their rows below each other. Biases of the one may be three all the same,
// but not fewer, since libllama would leave them out then.
void find_projections(TensorLookup& find, const Hyperparameters& hyper, const Family& family,
                      const std::string& block, LayerWeights& w) {
  const int64_t n_q = int64_t{hyper.head_dim} * hyper.n_heads;
  const int64_t n_kv = int64_t{hyper.head_dim} * hyper.n_kv_heads;
  w.wqkv = find.find_matrix(block + "attn_qkv.weight", hyper.n_embd, n_q + 2 * n_kv);
  bool needs_biases = family.has_qkv_bias;
  if (w.wqkv == nullptr) {
    w.wq = find.matrix(block + "attn_q.weight", hyper.n_embd, n_q);
    w.wk = find.matrix(block + "attn_k.weight", hyper.n_embd, n_kv);
    w.wv = find.matrix(block + "attn_v.weight", hyper.n_embd, n_kv);
  } else {
    w.bqkv = find.find_vector(block + "attn_qkv.bias", n_q + 2 * n_kv);
    if (w.bqkv != nullptr) {
      return;
    }
    for (const char* name : {"attn_q.bias", "attn_k.bias", "attn_v.bias"}) {
      needs_biases = needs_biases || find.has(block + name);
    }
  }
  const auto bias = [&](const char* name, int64_t n) {
    return needs_biases ? find.vector(block + name, n) : find.find_vector(block + name, n);
  };
  w.bq = bias("attn_q.bias", n_q);
  w.bk = bias("attn_k.bias", n_kv);
  w.bv = bias("attn_v.bias", n_kv);
}

LayerWeights find_layer(TensorLookup& find, const Hyperparameters& hyper, const Family& family,
                        int layer) {
  const std::string block = "blk." + std::to_string(layer) + ".";
  const int64_t n_embd = hyper.n_embd;
  const int64_t n_ff = hyper.n_ff;

  LayerWeights w;
  w.attn_norm = find.vector(block + "attn_norm.weight", n_embd);
  find_projections(find, hyper, family, block, w);
  if (family.has_qk_norm) {
    w.attn_q_norm = find.vector(block + "attn_q_norm.weight", hyper.head_dim);
    w.attn_k_norm = find.vector(block + "attn_k_norm.weight", hyper.head_dim);
  }
  w.wo = find.matrix(block + "attn_output.weight", int64_t{hyper.head_dim} * hyper.n_heads, n_embd);
  if (family.has_output_bias) {
    w.bo = find.find_vector(block + "attn_output.bias", n_embd);
  }
  if (family.has_post_norms) {
    w.attn_post_norm = find.vector(block + "post_attention_norm.weight", n_embd);
    w.ffn_post_norm = find.vector(block + "post_ffw_norm.weight", n_embd);
  }
  w.ffn_norm = find.vector(block + "ffn_norm.weight", n_embd);
  if (!family.has_gate_in_up) {
    w.ffn_gate = find.matrix(block + "ffn_gate.weight", n_embd, n_ff);
  }
  w.ffn_up = find.matrix(block + "ffn_up.weight", n_embd, family.has_gate_in_up ? 2 * n_ff : n_ff);
  w.ffn_down = find.matrix(block + "ffn_down.weight", n_ff, n_embd);
  return w;
}

}  // namespace

WeightOption parse_weight_option(std::string_view name, std::string_view caller_name) {
  if (const std::optional<WeightOption> option = kWeightOptions.find(name)) {
    return *option;
  }
  std::vector<std::string_view> names;
  if (!caller_name.empty()) {
    names.push_back(caller_name);
  }
  for (const auto& entry : kWeightOptions.entries) {
    names.emplace_back(entry.name);
  }
  throw Error(ErrorCode::kInvalidArgument, unknown_name(kWeightOptions.kind, name, names));
}

const char* weight_option_name(const WeightOption& option) {
  return kWeightOptions.name(option);
}

const char* weight_type_name(WeightType type) {
  return weight_option_name({.type = type});
}

ggml_type expanded_type(WeightType type) {
  switch (type) {
    case WeightType::kF16:
      return GGML_TYPE_F16;
    case WeightType::kBf16:
      return GGML_TYPE_BF16;
    case WeightType::kF32:
      return GGML_TYPE_F32;
    case WeightType::kFile:
      break;
  }
  return GGML_TYPE_COUNT;  // nothing is expanded
}

struct Weights::Storage {
  std::unique_ptr<ExpandedMatrices> expanded;
  ggml_context_ptr descriptions;  // of copies on a device
  ggml_backend_buffer_ptr on_device;
};

Weights::Weights(const GgufFile& file, const Hyperparameters& hyper, const WeightOption& option,
                 int n_threads)
    : storage_(std::make_unique<Storage>()) {
  const Family& family = find_family(hyper.architecture);
  find_tensors(file, hyper, family);
  expand(file, option, n_threads);
  const bool is_tied = output == nullptr;
  if (is_tied) {
    output = token_embd;
  }
}

Weights::~Weights() = default;

Weights::Weights(const Weights& weights, ggml_backend_buffer_type_t buffer_type)
    : token_embd(weights.token_embd),
      output_norm(weights.output_norm),
      output(weights.output),
      rope_freqs(weights.rope_freqs),
      rope_factors_long(weights.rope_factors_long),
      rope_factors_short(weights.rope_factors_short),
      layers(weights.layers),
      storage_(std::make_unique<Storage>()) {
  const std::vector<ggml_tensor**> all = tensors();
  storage_->descriptions.reset(ggml_init({.mem_size = (all.size() + 1) * ggml_tensor_overhead(),
                                          .mem_buffer = nullptr,
                                          .no_alloc = true}));
  std::vector<const ggml_tensor*> sources;
  for (ggml_tensor** const tensor : all) {
    sources.push_back(*tensor);
    *tensor = ggml_dup_tensor(storage_->descriptions.get(), *tensor);
    ggml_set_name(*tensor, sources.back()->name);
  }
  storage_->on_device.reset(
      ggml_backend_alloc_ctx_tensors_from_buft(storage_->descriptions.get(), buffer_type));
  if (!storage_->on_device) {
    throw Error(ErrorCode::kResourceExhausted,
                "no memory for the weights on the GPU (" +
                    format_bytes(ggml_backend_alloc_ctx_tensors_from_buft_size(
                        storage_->descriptions.get(), buffer_type)) +
                    ")");
  }
  ggml_backend_buffer_set_usage(storage_->on_device.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
  for (size_t i = 0; i < all.size(); ++i) {
    ggml_backend_tensor_set(*all[i], sources[i]->data, 0, ggml_nbytes(sources[i]));
  }
}

size_t Weights::device_bytes() const {
  return storage_->on_device ? ggml_backend_buffer_get_size(storage_->on_device.get()) : 0;
}

std::vector<ggml_tensor**> Weights::tensors() {
  std::vector<ggml_tensor**> all;
  const auto add = [&all](ggml_tensor*& tensor) {
    if (tensor != nullptr) {
      all.push_back(&tensor);
    }
  };
  for (ggml_tensor** const tensor :
       {&output_norm, &output, &rope_freqs, &rope_factors_long, &rope_factors_short}) {
    add(*tensor);
  }
  for (LayerWeights& layer : layers) {
    for (ggml_tensor** const tensor :
         {&layer.attn_norm, &layer.wq, &layer.wk, &layer.wv, &layer.bq, &layer.bk, &layer.bv,
          &layer.wqkv, &layer.bqkv, &layer.attn_q_norm, &layer.attn_k_norm, &layer.wo, &layer.bo,
          &layer.attn_post_norm, &layer.ffn_norm, &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down,
          &layer.ffn_post_norm}) {
      add(*tensor);
    }
  }
  return all;
}

void Weights::find_tensors(const GgufFile& file, const Hyperparameters& hyper,
                           const Family& family) {
  TensorLookup find(file);
  token_embd = find.matrix("token_embd.weight", hyper.n_embd, hyper.n_vocab);
  output_norm = find.vector("output_norm.weight", hyper.n_embd);
  output = find.find_matrix("output.weight", hyper.n_embd, hyper.n_vocab);
  if (family.has_rope_freqs) {
    rope_freqs = find.find_vector("rope_freqs.weight", hyper.rope.n_rot / 2);
  }
  if (family.has_context_factors) {
    find_context_factors(find, file, hyper);
  }
  for (int layer = 0; layer < hyper.n_layers; ++layer) {
    layers.push_back(find_layer(find, hyper, family, layer));
  }
  find.expect_all_used(family.architecture);
}

// Both sets or none: which one a session needs is not known yet.
void Weights::find_context_factors(TensorLookup& find, const GgufFile& file,
                                   const Hyperparameters& hyper) {
  constexpr const char* kLong = "rope_factors_long.weight";
  constexpr const char* kShort = "rope_factors_short.weight";
  if (file.find_tensor(kLong) != nullptr || file.find_tensor(kShort) != nullptr) {
    rope_factors_long = find.vector(kLong, hyper.rope.n_rot / 2);
    rope_factors_short = find.vector(kShort, hyper.rope.n_rot / 2);
  }
}

// Replaces matrices by expanded copies, and counts what is read from where.
void Weights::expand(const GgufFile& file, const WeightOption& option, int n_threads) {
  for (const ggml_tensor* tensor : file.tensors()) {
    mapped_bytes_ += ggml_nbytes(tensor);
  }
  const std::vector<const ggml_tensor*> sources = matrices_to_expand(file, option);
  if (sources.empty()) {
    return;
  }
  const Stopwatch stopwatch;
  storage_->expanded = std::make_unique<ExpandedMatrices>(sources, expanded_type(option.type));
  n_overflows_ = storage_->expanded->convert(n_threads);
  expand_ms_ = stopwatch.ms();
  std::unordered_map<const ggml_tensor*, ggml_tensor*> copies;
  for (size_t i = 0; i < sources.size(); ++i) {
    copies[sources[i]] = storage_->expanded->tensor(i);
    mapped_bytes_ -= ggml_nbytes(sources[i]);
  }
  expanded_bytes_ = storage_->expanded->size_bytes();

  const auto replace = [&copies](ggml_tensor*& tensor) {
    if (const auto copy = copies.find(tensor); copy != copies.end()) {
      tensor = copy->second;
    }
  };
  replace(token_embd);
  replace(output);
  for (LayerWeights& layer : layers) {
    for (ggml_tensor** matrix : {&layer.wq, &layer.wk, &layer.wv, &layer.wqkv, &layer.wo,
                                 &layer.ffn_gate, &layer.ffn_up, &layer.ffn_down}) {
      replace(*matrix);
    }
  }
}

std::vector<const ggml_tensor*> matrices_to_expand(const GgufFile& file,
                                                   const WeightOption& option) {
  std::vector<const ggml_tensor*> matrices;
  for (const ggml_tensor* tensor : file.tensors()) {
    const bool is_matrix = tensor->ne[1] > 1;
    const bool is_of_layer = std::string_view(tensor->name).starts_with("blk.");
    if (option.type != WeightType::kFile && is_matrix && (is_of_layer || !option.is_for_prompts) &&
        tensor->type != expanded_type(option.type)) {
      matrices.push_back(tensor);
    }
  }
  return matrices;
}

size_t expansion_bytes(const GgufFile& file, const WeightOption& option) {
  size_t n_bytes = 0;
  for (const ggml_tensor* matrix : matrices_to_expand(file, option)) {
    n_bytes +=
        static_cast<size_t>(ggml_nelements(matrix)) * ggml_type_size(expanded_type(option.type));
  }
  return n_bytes;
}

}  // namespace winnow::model
