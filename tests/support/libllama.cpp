#include "support/libllama.h"

#include <memory>
#include <stdexcept>

#include "llama.h"
#include "model/libllama.h"

namespace winnow::test {
namespace {

using ModelPtr = std::unique_ptr<llama_model, decltype(&llama_model_free)>;
using ContextPtr = std::unique_ptr<llama_context, decltype(&llama_free)>;

ModelPtr load_model(const std::string& path) {
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = 0;
  params.use_extra_bufts = false;
  params.progress_callback = [](float, void*) { return true; };
  return {llama_model_load_from_file(path.c_str(), params), llama_model_free};
}

// What llama.cpp's programs make of the flags of these names.
void set_rope(llama_context_params& params, const model::RopeOptions& rope) {
  constexpr llama_rope_scaling_type kTypes[] = {
      LLAMA_ROPE_SCALING_TYPE_NONE, LLAMA_ROPE_SCALING_TYPE_LINEAR, LLAMA_ROPE_SCALING_TYPE_YARN};
  if (rope.scaling) {
    params.rope_scaling_type = kTypes[static_cast<size_t>(*rope.scaling)];
  }
  params.rope_freq_base = rope.freq_base;
  params.rope_freq_scale = rope.scale != 0 ? 1.0F / rope.scale : rope.freq_scale;
  params.yarn_ext_factor = rope.yarn_ext_factor;
  params.yarn_attn_factor = rope.yarn_attn_factor;
  params.yarn_beta_fast = rope.yarn_beta_fast;
  params.yarn_beta_slow = rope.yarn_beta_slow;
  params.yarn_orig_ctx = static_cast<uint32_t>(rope.yarn_orig_ctx);
}

ContextPtr make_context(llama_model* model, uint32_t n_tokens, const LibllamaOptions& options) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = n_tokens;
  params.n_batch = n_tokens;
  params.n_ubatch = static_cast<uint32_t>(options.n_ubatch);
  params.n_seq_max = 1;
  params.n_threads = options.n_threads;
  params.n_threads_batch = options.n_threads;
  params.flash_attn_type =
      options.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = options.kv_type;
  params.type_v = options.kv_type;
  set_rope(params, options.rope);
  return {llama_init_from_model(model, params), llama_free};
}

}  // namespace

std::vector<float> libllama_logits(const std::string& path, std::span<const int32_t> tokens,
                                   const LibllamaOptions& options) {
  model::start_libllama();
  const ModelPtr model = load_model(path);
  if (model == nullptr) {
    throw std::runtime_error("libllama cannot load " + path + ": " + model::libllama_error());
  }
  const auto n_tokens = static_cast<int32_t>(tokens.size());
  const ContextPtr context = make_context(model.get(), static_cast<uint32_t>(n_tokens), options);
  if (context == nullptr) {
    throw std::runtime_error("libllama cannot make a context: " + model::libllama_error());
  }
  llama_batch batch = llama_batch_init(n_tokens, 0, 1);
  batch.n_tokens = n_tokens;
  for (int32_t i = 0; i < n_tokens; ++i) {
    batch.token[i] = tokens[static_cast<size_t>(i)];
    batch.pos[i] = i;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  const int status = llama_decode(context.get(), batch);
  llama_batch_free(batch);
  if (status != 0) {
    throw std::runtime_error("libllama cannot decode: " + model::libllama_error());
  }
  const auto n_vocab =
      static_cast<size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
  const float* logits = llama_get_logits(context.get());
  return {logits, logits + tokens.size() * n_vocab};
}

}  // namespace winnow::test
