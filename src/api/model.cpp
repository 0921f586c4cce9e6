#include "winnow/model.h"

#include "base/threads.h"
#include "engine/admission.h"
#include "model/model.h"

namespace winnow {

Model::Model(const std::string& path, const ModelOptions& options)
    : impl_(std::make_shared<model::Model>(
          path, model::ModelOptions{.weights = model::parse_weight_option(options.weights),
                                    .n_threads = resolve_threads(options.n_threads)})) {}

ModelInfo Model::info() const {
  const model::Hyperparameters& hyper = impl_->hyper();
  return {.family = std::string(impl_->family().architecture),
          .n_layers = hyper.n_layers,
          .n_embd = hyper.n_embd,
          .n_heads = hyper.n_heads,
          .n_kv_heads = hyper.n_kv_heads,
          .head_dim = hyper.head_dim,
          .n_vocab = hyper.n_vocab,
          .n_ctx_train = hyper.n_ctx_train,
          .has_chat_template = !impl_->vocabulary().chat_template().empty(),
          .mapped_bytes = impl_->weights().mapped_bytes(),
          .expanded_bytes = impl_->expanded_bytes()};
}

std::vector<Token> Model::tokenize(std::string_view text) const {
  return impl_->vocabulary().tokenize(text, model::SpecialText::kPlain);
}

std::string Model::text_of(std::span<const Token> tokens) const {
  engine::check_tokens(tokens, impl_->hyper().n_vocab);
  std::string text;
  for (const Token token : tokens) {
    text += impl_->vocabulary().piece(token);
  }
  return text;
}

}  // namespace winnow
