#include <algorithm>
#include <cstddef>

#include "llama.h"
#include "program.h"

namespace winnow::bench {
namespace {

constexpr int kBatch = 512;

class Libllama final : public Program {
 public:
  Libllama(const std::string& model, const Setup& setup, bool has_flash_attention, bool is_repacked)
      : setup_(setup), name_(libllama_name(has_flash_attention, is_repacked)) {
    llama_model_params model_params = llama_model_default_params();
    model_params.use_extra_bufts = is_repacked;
    model_ = llama_model_load_from_file(model.c_str(), model_params);
    params_ = llama_context_default_params();
    params_.n_batch = kBatch;
    params_.n_ubatch = kBatch;
    params_.n_threads = setup.n_threads;
    params_.n_threads_batch = setup.n_threads;
    params_.flash_attn_type =
        has_flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params_.n_ctx = static_cast<uint32_t>(setup.n_positions);
    context_ = llama_init_from_model(model_, params_);
  }
  ~Libllama() override {
    llama_free(together_);
    llama_free(context_);
    llama_model_free(model_);
  }
  Libllama(const Libllama&) = delete;
  Libllama& operator=(const Libllama&) = delete;

  const std::string& name() const override { return name_; }

  void rewind(int n_positions) override {
    llama_memory_seq_rm(llama_get_memory(context_), 0, n_positions, -1);
  }

  void prefill(std::span<const int32_t> tokens) override {
    for (size_t done = 0; done < tokens.size(); done += kBatch) {
      const std::span<const int32_t> rest = tokens.subspan(done);
      std::vector<int32_t> part(rest.begin(),
                                rest.begin() + std::min<std::ptrdiff_t>(kBatch, std::ssize(rest)));
      llama_decode(context_, llama_batch_get_one(part.data(), static_cast<int32_t>(part.size())));
    }
    llama_synchronize(context_);
  }

  void decode(int n_tokens) override {
    for (int i = 0; i < n_tokens; ++i) {
      int32_t token = 100 + i;
      llama_decode(context_, llama_batch_get_one(&token, 1));
      llama_get_logits_ith(context_, -1);
    }
  }

  // A part of the cache for each sequence: the faster way for sequences that share nothing.
  void start_together(std::span<const int32_t> prompt) override {
    if (together_ == nullptr) {
      llama_context_params params = params_;
      params.n_seq_max = static_cast<uint32_t>(setup_.n_sequences);
      params.n_ctx = static_cast<uint32_t>(setup_.n_sequences * setup_.n_together);
      params.kv_unified = false;
      together_ = llama_init_from_model(model_, params);
    }
    llama_memory_clear(llama_get_memory(together_), true);
    llama_batch batch = llama_batch_init(static_cast<int32_t>(prompt.size()), 0, 1);
    for (int sequence = 0; sequence < setup_.n_sequences; ++sequence) {
      batch.n_tokens = 0;
      for (size_t i = 0; i < prompt.size(); ++i) {
        add(batch, prompt[i], static_cast<int>(i), sequence, i + 1 == prompt.size());
      }
      llama_decode(together_, batch);
    }
    llama_synchronize(together_);
    llama_batch_free(batch);
    n_fed_ = static_cast<int>(prompt.size());
  }

  void decode_together(int n_tokens) override {
    llama_batch batch = llama_batch_init(setup_.n_sequences, 0, 1);
    for (int i = 0; i < n_tokens; ++i) {
      batch.n_tokens = 0;
      for (int sequence = 0; sequence < setup_.n_sequences; ++sequence) {
        add(batch, 100 + i + sequence, n_fed_, sequence, true);
      }
      llama_decode(together_, batch);
      llama_get_logits_ith(together_, -1);
      ++n_fed_;
    }
    llama_batch_free(batch);
  }

 private:
  static void add(llama_batch& batch, int32_t token, int position, int sequence, bool has_logits) {
    const int i = batch.n_tokens++;
    batch.token[i] = token;
    batch.pos[i] = position;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = sequence;
    batch.logits[i] = has_logits ? 1 : 0;
  }

  Setup setup_;
  std::string name_;
  llama_context_params params_{};
  llama_model* model_ = nullptr;
  llama_context* context_ = nullptr;
  llama_context* together_ = nullptr;
  int n_fed_ = 0;  // by each sequence of together_
};

}  // namespace

std::string libllama_name(bool has_flash_attention, bool is_repacked) {
  return std::string(has_flash_attention ? "fa" : "no-fa") + (is_repacked ? "+repack" : "");
}

std::unique_ptr<Program> make_libllama(const std::string& model, const Setup& setup,
                                       bool has_flash_attention, bool is_repacked) {
  return std::make_unique<Libllama>(model, setup, has_flash_attention, is_repacked);
}

}  // namespace winnow::bench
