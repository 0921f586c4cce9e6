#include "model/model.h"

namespace winnow::model {

Model::Model(const std::string& path, const ModelOptions& options)
    : file_(path),
      family_(&find_family(file_.string("general.architecture"))),
      hyper_(read_hyperparameters(file_, *family_, options.rope)) {
  const int n_tokens = check_vocabulary(file_);
  if (n_tokens != hyper_.n_vocab) {
    file_.throw_damaged("the vocabulary has " + std::to_string(n_tokens) +
                        " tokens, but there are " + std::to_string(hyper_.n_vocab) + " embeddings");
  }
  // Before the vocabulary: a wrong shape is found in no time, libllama takes up to half a second.
  weights_ = std::make_unique<Weights>(file_, hyper_, options.weights, options.n_threads);
  vocabulary_ = std::make_unique<Vocabulary>(file_);
}

}  // namespace winnow::model
