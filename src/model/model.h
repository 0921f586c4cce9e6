// A loaded model: its numbers, weights, vocabulary and family.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "model/families.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/vocabulary.h"
#include "model/weights.h"

namespace winnow::model {

struct ModelOptions {
  WeightOption weights = {};
  int n_threads = 1;      // for expanding weights
  RopeOptions rope = {};  // what is not as the file states
};

class Model {
 public:
  // Throws what GgufFile, read_hyperparameters, Weights and Vocabulary throw.
  Model(const std::string& path, const ModelOptions& options);

  const GgufFile& file() const { return file_; }
  const Family& family() const { return *family_; }
  const Hyperparameters& hyper() const { return hyper_; }
  // What generated tokens are multiplied with, and all of them where there is one set only.
  const Weights& weights() const { return *weights_; }
  // What graphs of the prompt's class (docs/decisions/determinism.md) are multiplied with.
  const Weights& prompt_weights() const { return prompt_weights_ ? *prompt_weights_ : *weights_; }
  // What graphs on a device are multiplied with, once load_on() has been called.
  const Weights& device_weights() const { return *device_weights_; }
  const WeightOption& weight_option() const { return weight_option_; }
  size_t expanded_bytes() const;  // of both
  double expand_ms() const;
  // How layers without a window, and those with one, rotate queries and keys in a session of at most n_ctx positions.
  kernels::Rotation rotation(int n_ctx) const;
  kernels::Rotation windowed_rotation() const;
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const std::string& fingerprint() const;  // of the file (model/fingerprint.h)

  // Gives a model whose weights are the file's expanded ones for prompts. Before anything is read with the model. Returns
  // how many values are too large for the type; where there are any, all stays as it was. Throws resource_exhausted.
  size_t expand_for_prompts(WeightType type, int n_threads);

  // Copies the weights to buffers of such a type. Throws resource_exhausted.
  void load_on(ggml_backend_buffer_type_t buffer_type);
  bool is_on_device() const { return device_weights_ != nullptr; }

 private:
  GgufFile file_;
  const Family* family_;
  Hyperparameters hyper_;
  std::unique_ptr<Vocabulary> vocabulary_;
  WeightOption weight_option_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Weights> prompt_weights_;  // null where they are the same
  std::unique_ptr<Weights> device_weights_;  // null where there is no device
  mutable std::once_flag has_fingerprint_;
  mutable std::string fingerprint_;
};

// Reads and checks the hyperparameters that `family` needs. Throws bad_data, unsupported, or what resolve_rope throws.
Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family,
                                     const RopeOptions& rope = {});

}  // namespace winnow::model
