#include "model/families.h"

#include <string>

#include "base/error.h"
#include "model/gguf_file.h"
#include "model/graph_parts.h"

namespace winnow::model {

const Family& find_family(std::string_view architecture) {
  std::string supported;
  for (const Family* family : kFamilies) {
    if (family->architecture == architecture) {
      return *family;
    }
    supported += (supported.empty() ? "" : "; ") + std::string(family->architecture) + ": " +
                 std::string(family->help);
  }
  throw Error(ErrorCode::kUnsupported, "model architecture " + quoted(architecture) +
                                           " is not supported (supported: " + supported + ")");
}

ggml_tensor* embed(const GraphBuilder& build, ggml_tensor* tokens) {
  ggml_tensor* x = ggml_get_rows(build.ctx, build.weights.token_embd, tokens);
  return build.hyper.embedding_scale == 1.0F
             ? x
             : ggml_scale(build.ctx, x, build.hyper.embedding_scale);
}

ggml_tensor* logits(const GraphBuilder& build, ggml_tensor* x) {
  ggml_tensor* normed = rms_norm(build, x, build.weights.output_norm);  // [n_embd, n_outputs]
  ggml_tensor* logits = linear(build, build.weights.output, nullptr, normed);
  if (const float cap = build.hyper.logit_softcap; cap != 0.0F) {
    logits = ggml_tanh(build.ctx, ggml_scale(build.ctx, logits, 1.0F / cap));
    logits = ggml_scale(build.ctx, logits, cap);
  }
  return logits;  // [n_vocab, n_outputs]
}

float attention_scale(const Family& family, const Hyperparameters& hyper) {
  return family.scales_queries ? 1.0F : hyper.query_scale;
}

}  // namespace winnow::model
