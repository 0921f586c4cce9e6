#include "model/model.h"

#include "base/error.h"
#include "base/log.h"
#include "model/fingerprint.h"

namespace winnow::model {
namespace {

void warn_of_overflows(size_t n_overflows, WeightType type) {
  if (n_overflows > 0) {
    log_warning(std::to_string(n_overflows) + " weights are too large for " +
                weight_type_name(type) + " and became infinite; use --weights bf16 or f32");
  }
}

}  // namespace

Model::Model(const std::string& path, const ModelOptions& options)
    : file_(path),
      family_(&find_family(file_.string("general.architecture"))),
      hyper_(read_hyperparameters(file_, *family_, options.rope)),
      weight_option_(options.weights) {
  const int n_tokens = check_vocabulary(file_);
  if (n_tokens != hyper_.n_vocab) {
    file_.throw_damaged("the vocabulary has " + std::to_string(n_tokens) +
                        " tokens, but there are " + std::to_string(hyper_.n_vocab) + " embeddings");
  }
  // Before the vocabulary: a wrong shape is found in no time, libllama takes up to half a second.
  weights_ = std::make_unique<Weights>(
      file_, hyper_, weight_option_.is_for_prompts ? WeightOption{} : weight_option_,
      options.n_threads);
  if (weight_option_.is_for_prompts) {
    prompt_weights_ = std::make_unique<Weights>(file_, hyper_, weight_option_, options.n_threads);
  }
  warn_of_overflows(prompt_weights().n_overflows(), weight_option_.type);
  vocabulary_ = std::make_unique<Vocabulary>(file_);
}

size_t Model::expand_for_prompts(WeightType type, int n_threads) {
  WINNOW_CHECK(weights_->expanded_bytes() == 0 && !prompt_weights_);
  const WeightOption option{.type = type, .is_for_prompts = true};
  auto expanded = std::make_unique<Weights>(file_, hyper_, option, n_threads);
  const size_t n_overflows = expanded->n_overflows();
  if (n_overflows == 0) {
    prompt_weights_ = std::move(expanded);
    weight_option_ = option;
  }
  return n_overflows;
}

void Model::load_on(ggml_backend_buffer_type_t buffer_type) {
  device_weights_ = std::make_unique<Weights>(*weights_, buffer_type);
}

size_t Model::expanded_bytes() const {
  return weights_->expanded_bytes() + (prompt_weights_ ? prompt_weights_->expanded_bytes() : 0);
}

kernels::Rotation Model::rotation(int n_ctx) const {
  const ggml_tensor* const factors = weights_->rope_factors(is_long_context(hyper_.rope, n_ctx));
  return model::rotation(hyper_.rope, factors == nullptr
                                          ? std::span<const float>()
                                          : std::span(static_cast<const float*>(factors->data),
                                                      static_cast<size_t>(factors->ne[0])));
}

kernels::Rotation Model::windowed_rotation() const {
  return hyper_.has_windows() ? model::rotation(hyper_.rope_swa, {}) : kernels::Rotation();
}

double Model::expand_ms() const {
  return weights_->expand_ms() + (prompt_weights_ ? prompt_weights_->expand_ms() : 0);
}

const std::string& Model::fingerprint() const {
  std::call_once(has_fingerprint_, [this] { fingerprint_ = model::fingerprint(file_); });
  return fingerprint_;
}

}  // namespace winnow::model
