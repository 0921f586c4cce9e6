// A loaded model: its numbers, weights, vocabulary and family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/families.h"
#include "model/gguf_file.h"
#include "model/hyperparameters.h"
#include "model/vocabulary.h"
#include "model/weights.h"

namespace winnow::model {

struct ModelOptions {
  WeightType weights = WeightType::kFile;
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
  const Weights& weights() const { return *weights_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }

 private:
  GgufFile file_;
  const Family* family_;
  Hyperparameters hyper_;
  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<Weights> weights_;
};

// Reads and checks the hyperparameters that `family` needs. Throws bad_data, unsupported, or what resolve_rope throws.
Hyperparameters read_hyperparameters(const GgufFile& file, const Family& family,
                                     const RopeOptions& rope = {});

}  // namespace winnow::model
